"""§5.1, §5.5: TTL and expiry end a stream for readers at once, and on disk soon after."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.conftest import KINDS, SLIDING
from tests.support.looping import for_each
from tests.support.streams import Api, check_problem, wait_until

# With a pause of 50 ms after each, these take longer than any TTL here, on any machine.
USES_MAX = 600


def in_seconds(seconds: float) -> str:
    """An RFC 3339 timestamp this far from now."""
    moment = time.time() + seconds
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{whole}.{int(moment % 1 * 1000):03d}Z"


def wait_until_gone(api: Api, path: str) -> None:
    wait_until("the stream expires", lambda: api.head(path).status == 404)


def check_gone(api: Api, path: str) -> None:
    """An expired stream is 404 for every method."""
    check_problem(api.get(path), 404, "stream-not-found")
    check_problem(api.get(path, "offset=now&live=long-poll"), 404, "stream-not-found")
    check_problem(api.get(path, "offset=-1&live=sse"), 404, "stream-not-found")
    check_problem(api.post(path, b"x"), 404, "stream-not-found")
    check_problem(api.request("DELETE", path), 404, "stream-not-found")


def test_a_ttl_of_zero_expires_at_once(api: Api) -> None:
    """It is a valid TTL."""
    path = api.create(body=b"x", headers={"Stream-TTL": "0"})
    assert api.head(path).status == 404
    check_gone(api, path)


@for_each("header", ["Stream-TTL", "Stream-Expires-At"])
def test_a_stream_expires(api: Api, header: str) -> None:
    """Then a new stream can be created at the URL."""
    value = "1" if header == "Stream-TTL" else in_seconds(1)
    path = api.create(body=b"old", headers={header: value})
    etag = api.get(path).headers.get("etag") or '"gone already"'
    wait_until_gone(api, path)
    check_gone(api, path)
    api.create("text/plain", b"new", path=path)
    response = api.get(path, headers={"If-None-Match": etag})
    assert (response.status, response.body) == (200, b"new")
    assert "stream-ttl" not in api.head(path).headers


def test_an_expired_stream_can_be_created_again_at_once(api: Api) -> None:
    """Also before the sweeper has removed it, with another type and the same TTL."""
    path = api.path()
    for content_type in ("text/plain", "text/html", "application/json"):
        api.create(content_type, b"[1]", {"Stream-TTL": "0"}, path)
    assert api.head(path).status == 404


def test_ttl_counts_from_creation(api: Api) -> None:
    """Reads and writes do not extend it; the value in HEAD only decreases."""
    path = api.create(body=b"x", headers={"Stream-TTL": "2"})
    remaining = []
    while (response := api.head(path)).status == 200:
        remaining.append(int(response.headers["stream-ttl"]))
        api.get(path)
        api.post(path, b"y")
        assert len(remaining) < USES_MAX, "a read or an append has extended the TTL"
        time.sleep(0.05)
    assert remaining == sorted(remaining, reverse=True)
    assert set(remaining) <= {1, 2}
    # Rounded up: never 0 while the stream exists.
    assert remaining[-1] >= 1


def test_the_configuration_is_compared_with_the_ttl_of_the_create(api: Api) -> None:
    """Not with the remaining TTL."""
    path = api.create(headers={"Stream-TTL": "1000"})
    time.sleep(0.01)
    again = {"Content-Type": "text/plain", "Stream-TTL": "1000"}
    assert api.request("PUT", path, again).status == 200


def test_expiry_ends_event_streams(api: Api) -> None:
    """With a control event that has streamDeleted."""
    path = api.create(body=b"x", headers={"Stream-TTL": "1"})
    with api.sse(path) as events:
        seen = list(events)
    assert seen[-1].json.get("streamDeleted") is True


def uses_of(api: Api) -> dict[str, Callable[[str], int]]:
    """Every read and write that restarts a sliding TTL; each returns its status."""

    def read_tail(path: str) -> int:
        return api.get(path, f"offset={api.tail(path)}").status

    def read_events(path: str) -> int:
        with api.sse(path) as events:
            events.next()
            return events.head.status

    return {
        "read": lambda path: api.get(path).status,
        "tail": read_tail,
        "now": lambda path: api.get(path, "offset=now").status,
        "append": lambda path: api.post(path, b"y").status,
        "long-poll": lambda path: api.get(path, "offset=-1&live=long-poll").status,
        "sse": read_events,
        "close": lambda path: api.close_stream(path).status,
    }


def test_a_sliding_ttl_restarts_with_every_read_and_write(sliding: Api) -> None:
    def remaining(path: str) -> int:
        return int(sliding.head(path).headers["stream-ttl"])

    uses = uses_of(sliding)
    headers = {"Stream-TTL": "100"}
    paths = {use: sliding.create(body=b"x", headers=headers) for use in ("none", *uses)}
    wait_until("a second passes", lambda: all(remaining(path) < 100 for path in paths.values()))
    for use, act in uses.items():

        def restarted(use: str = use, act: Callable[[str], int] = act) -> bool:
            assert act(paths[use]) in (200, 204), use
            # The value is 100 only within a second after the restart.
            return remaining(paths[use]) == 100

        wait_until(f"the TTL restarts by {use}", restarted)
    assert remaining(paths["none"]) < 100


@pytest.mark.slow
def test_streams_in_use_exist_longer_than_their_sliding_ttl(sliding: Api) -> None:
    uses = uses_of(sliding)
    ttl_s = 4
    headers = {"Stream-TTL": str(ttl_s)}
    paths = {use: sliding.create(body=b"x", headers=headers) for use in ("none", *uses)}
    closed = False
    started = time.monotonic()
    while (passed := time.monotonic() - started) < ttl_s * 1.4:
        for use, act in uses.items():
            # A stream is closed once, in the middle of its TTL, which restarts it.
            if use == "close" and (closed or passed < ttl_s / 2):
                continue
            closed = closed or use == "close"
            assert act(paths[use]) in (200, 204), use
        time.sleep(0.1)
    alive = {use for use, path in paths.items() if sliding.head(path).status == 200}
    assert alive == set(uses)


def test_an_open_event_stream_keeps_a_sliding_stream_alive(sliding: Api) -> None:
    """For as long as it is open, and not a heartbeat longer."""
    path = sliding.create(body=b"x", headers={"Stream-TTL": "1"})
    later = sliding.create(body=b"x", headers={"Stream-TTL": "3"})
    with sliding.sse(path) as events:
        events.until(tail=sliding.tail(path))
        wait_until_gone(sliding, later)
        assert sliding.head(path).status == 200
        # Not by a request, which would restart the TTL itself.
        assert "streamDeleted" not in events.raw.decode()
        tail = sliding.append(path, b"still here")
        assert events.until(tail=tail)[0].data == "still here"
    wait_until_gone(sliding, path)


def test_a_sliding_ttl_does_not_restart_with_head(sliding: Api) -> None:
    path = sliding.create(body=b"x", headers={"Stream-TTL": "1"})
    wait_until_gone(sliding, path)
    check_gone(sliding, path)


def test_a_sliding_ttl_expires_an_unused_stream(sliding: Api) -> None:
    """After a read that restarts it."""
    path = sliding.create(body=b"x", headers={"Stream-TTL": "1"})
    assert sliding.get(path).status == 200
    wait_until_gone(sliding, path)


def test_absolute_expiry_does_not_slide(sliding: Api) -> None:
    """Stream-Expires-At is a fixed time in both modes."""
    path = sliding.create(body=b"x", headers={"Stream-Expires-At": in_seconds(1)})
    for _ in range(USES_MAX):
        if sliding.get(path).status == 404:
            return
        time.sleep(0.05)
    pytest.fail("a read has extended the expiry")


def test_head_shows_a_restarted_sliding_ttl(sliding: Api) -> None:
    """After a read the whole TTL remains."""
    path = sliding.create(body=b"x", headers={"Stream-TTL": "100"})
    time.sleep(1.1)
    assert int(sliding.head(path).headers["stream-ttl"]) <= 99
    sliding.get(path)
    assert int(sliding.head(path).headers["stream-ttl"]) == 100


def disk_bytes(directory: Path, *, logs: bool) -> int:
    """The disk usage of a directory: of its write-ahead logs, or of all other files."""
    total = 0
    for file in directory.rglob("*"):
        try:
            if (file.suffix == ".log") is logs:
                total += file.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


@pytest.mark.parametrize("how", ["expiry", "delete"])
def test_the_space_of_an_expired_or_deleted_stream_is_freed(how: str, tmp_path: Path) -> None:
    """
    The sweeper removes the stream, and logs and other files shrink without any further write.

    48 MB of random bytes, which cannot be compressed, in one stream; another stream stays. The TTL
    slides, so that the stream cannot expire while it is written, however slow the machine.
    """
    data_dir = tmp_path / "data"
    with KINDS["wire-rocksdb"](data_dir, *SLIDING) as server:
        api = Api(server)
        kept = api.create(body=b"kept")
        headers = {"Stream-TTL": "2"} if how == "expiry" else {}
        path = api.create("application/octet-stream", headers=headers)
        noise = random.Random(how).randbytes(2 << 20)
        for _ in range(24):
            response = api.post(path, noise, content_type="application/octet-stream")
            assert response.status == 204
        assert disk_bytes(data_dir, logs=True) + disk_bytes(data_dir, logs=False) > 40 << 20
        if how == "delete":
            assert api.request("DELETE", path).status == 204
        wait_until_gone(api, path)
        wait_until("logs are freed", lambda: disk_bytes(data_dir, logs=True) < 10 << 20)
        wait_until("other files are freed", lambda: disk_bytes(data_dir, logs=False) < 10 << 20)
        assert api.read_all(kept) == b"kept"
        api.close()
