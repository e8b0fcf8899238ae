"""The counters of a server after known requests, on both transports."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.server.metrics.pages import Page, scrape
from tests.support.streams import Api

# Not an assertion about speed: the machine may be busy.
WAIT_S = 60.0


def grown(before: Page, after: Page, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The increase of each sample of a name that increased, without the scrapes themselves."""
    old = before.all(name)
    return {
        labels: value - old.get(labels, 0)
        for labels, value in after.all(name).items()
        if value != old.get(labels, 0) and ("operation", "metrics") not in labels
    }


def until(api: Api, is_so: Callable[[Page], bool]) -> Page:
    """Scrape until the condition is true; returns that page."""
    deadline = time.monotonic() + WAIT_S
    while not is_so(page := scrape(api)):
        assert time.monotonic() < deadline, page.families
    return page


def test_requests_are_counted_by_operation_and_status(api: Api) -> None:
    before = scrape(api)
    path = api.path()
    text = {"Content-Type": "text/plain"}
    assert api.request("PUT", path, text).status == 201
    assert api.request("PUT", path, text).status == 200
    for _ in range(3):
        assert api.request("POST", path, text, b"hello").status == 204
    assert api.request("GET", path).body == b"hello" * 3
    assert api.request("HEAD", path).status == 200
    assert api.request("GET", f"{path}?offset=-1&live=long-poll").body == b"hello" * 3
    assert api.request("POST", path, {"Content-Type": "text/html"}, b"x").status == 409
    assert api.request("GET", api.path("missing")).status == 404
    assert api.request("DELETE", path).status == 204
    after = scrape(api)
    assert grown(before, after, "tailrace_requests_total") == {
        (("operation", "create"), ("status", "201")): 1,
        (("operation", "create"), ("status", "200")): 1,
        (("operation", "append"), ("status", "204")): 3,
        (("operation", "append"), ("status", "409")): 1,
        (("operation", "read"), ("status", "200")): 1,
        (("operation", "read"), ("status", "404")): 1,
        (("operation", "head"), ("status", "200")): 1,
        (("operation", "long-poll"), ("status", "200")): 1,
        (("operation", "delete"), ("status", "204")): 1,
    }
    assert grown(before, after, "tailrace_refused_total") == {
        (("code", "content-type-mismatch"),): 1,
        (("code", "stream-not-found"),): 1,
    }
    assert grown(before, after, "tailrace_read_bytes_total") == {
        (("operation", "read"),): 15,
        (("operation", "long-poll"),): 15,
    }
    # Only accepted appends: a rejected one does not write to disk.
    assert grown(before, after, "tailrace_append_seconds_count") == {(): 3}


def test_committed_bytes_and_messages_are_counted_by_bucket(api: Api) -> None:
    bucket = api.new_bucket()
    before = scrape(api)
    path = api.in_bucket(bucket, "counted")
    json = {"Content-Type": "application/json"}
    assert api.request("PUT", path, json).status == 201
    assert api.request("POST", path, json, b"[1, 22, 333]").status == 204
    claim = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    assert api.request("POST", path, {**json, **claim}, b"4444").status == 200
    # A retry stores nothing: only the request is counted.
    assert api.request("POST", path, {**json, **claim}, b"4444").status == 204
    tail = api.request("HEAD", path).headers["stream-next-offset"]
    messages, size = map(int, tail.split("_"))
    after = scrape(api)
    assert (messages, size > 0) == (4, True)
    assert grown(before, after, "tailrace_appended_messages_total") == {(): messages}
    assert grown(before, after, "tailrace_appended_bytes_total") == {(): size}
    assert grown(before, after, "tailrace_commit_batch_records_sum") == {(): 2}
    assert grown(before, after, "tailrace_bucket_appends_total") == {(("bucket", bucket),): 2}
    assert after("tailrace_bucket_streams", bucket=bucket) == 1
    assert after("tailrace_bucket_bytes", bucket=bucket) == size
    assert api.request("DELETE", path).status == 204
    assert api.request("DELETE", f"{api.server.base_path}/{bucket}").status == 204
    gone = scrape(api)
    assert gone("tailrace_buckets") == after("tailrace_buckets") - 1
    assert bucket not in gone.labels("tailrace_bucket_streams", "bucket")
    assert min(gone.labels("tailrace_bucket_bytes", "bucket").values()) == 0


def test_the_measured_time_of_an_append_is_within_the_clients_wait(api: Api) -> None:
    """
    It includes the fsync, and no time before the request.

    Method: one client, one append at a time, so that each is its own commit. The time that the
    server measures is part of the client's wait, however slow the machine.
    """
    path = api.path()
    assert api.request("PUT", path, {"Content-Type": "text/plain"}).status == 201
    before = scrape(api)
    waited_s = 0.0
    for _ in range(50):
        start = time.monotonic()
        assert api.request("POST", path, {"Content-Type": "text/plain"}, b"x").status == 204
        waited_s += time.monotonic() - start
    after = scrape(api)
    assert list(grown(before, after, "tailrace_append_seconds_count").values()) == [50]
    # The sweeper may commit once in between.
    assert grown(before, after, "tailrace_commits_total")[()] in (50, 51)
    assert grown(before, after, "tailrace_commit_sync_seconds_count")[()] in (50, 51)
    (append_s,) = grown(before, after, "tailrace_append_seconds_sum").values()
    (sync_s,) = grown(before, after, "tailrace_commit_sync_seconds_sum").values()
    assert 0 < sync_s <= append_s <= waited_s


def test_reclaimed_bytes_are_counted_after_a_delete(api: Api) -> None:
    before = scrape(api)("tailrace_reclaimed_bytes_total")
    path = api.path()
    text = {"Content-Type": "text/plain"}
    assert api.request("PUT", path, text).status == 201
    # Larger than all garbage of other tests.
    assert api.request("POST", path, text, b"x" * 200_000).status == 204
    assert api.request("DELETE", path).status == 204
    after = until(api, lambda page: page("tailrace_reclaimed_bytes_total") >= before + 200_000)
    assert after("tailrace_reclaimed_bytes_total") < before + 400_000


def test_snapshot_files_are_counted_after_a_restart_and_until_they_are_removed(
    api: Api,
) -> None:
    def counted(page: Page) -> float:
        return page("tailrace_stored_bytes", kind="snapshots")

    def on_disk() -> int:
        files = (api.server.data_dir / "snapshots").iterdir()
        return sum(file.stat().st_size for file in files)

    path = api.in_bucket(api.new_bucket(), "large")
    text = {"Content-Type": "text/plain"}
    assert api.request("PUT", path, text).status == 201
    sizes = []
    for size in (3 << 20, 2 << 20):
        sizes.append(size)
        assert api.request("POST", path, text, b"x").status == 204
        tail = api.request("HEAD", path).headers["stream-next-offset"]
        assert api.request("PUT", f"{path}/snapshot/{tail}", text, b"s" * size).status in (201, 204)
        # The previous file is removed in the background.
        page = until(api, lambda page: counted(page) == on_disk() < sizes[-1] + 100_000)
        assert counted(page) > size
    api.close()
    api.server.restart()
    assert counted(scrape(api)) == counted(page)


def test_live_readers_are_counted_while_they_wait(api: Api) -> None:
    path = api.path()
    assert api.request("PUT", path, {"Content-Type": "text/plain"}).status == 201
    before = scrape(api)
    poll, events = api.connect(), api.connect()
    with poll, events:
        poll.send_request("GET", f"{path}?offset=now&live=long-poll")
        events.send_request("GET", f"{path}?offset=now&live=sse")
        waiting = until(
            api, lambda page: set(page.labels("tailrace_live_readers", "kind").values()) == {1.0}
        )
        assert waiting.labels("tailrace_live_readers", "kind") == {"long-poll": 1, "sse": 1}
        assert api.request("POST", path, {"Content-Type": "text/plain"}, b"now").status == 204
        assert poll.read_response().body == b"now"
        sent = grown(before, scrape(api), "tailrace_read_bytes_total")
        assert sent[(("operation", "long-poll"),)] == 3
        assert sent[(("operation", "sse"),)] > 3
    until(api, lambda page: not any(page.labels("tailrace_live_readers", "kind").values()))


def test_the_bytes_of_a_large_read_are_counted_as_sent(api: Api) -> None:
    """With and without compression."""
    path = api.path()
    headers = {"Content-Type": "text/plain"}
    assert api.request("PUT", path, headers, b"0123456789" * 200_000).status == 201
    for accepted in ({}, {"Accept-Encoding": "gzip"}):
        before = scrape(api)
        size = len(api.get(path, headers=accepted).body)
        sent = grown(before, scrape(api), "tailrace_read_bytes_total")
        assert sent[(("operation", "read"),)] == size


def test_connections_are_counted(api: Api) -> None:
    before = scrape(api)("tailrace_connections")
    # An ASGI app does not know the connections of its server.
    more = 0 if api.server.base_path else 2
    assert before == more / 2
    with api.connect(), api.connect():
        until(api, lambda page: page("tailrace_connections") == before + more)
    until(api, lambda page: page("tailrace_connections") == before)


def test_invalid_http_is_counted_as_rejected(api: Api) -> None:
    before = scrape(api)
    expected = {(("code", "body-too-large"),): 1.0}
    with api.connect() as connection:
        connection.send_request("POST", api.path(), {"Content-Length": str(1 << 40)})
        assert connection.read_response().status == 413
    if not api.server.base_path:
        # An ASGI server rejects invalid HTTP itself.
        expected[(("code", "request-malformed"),)] = 1.0
        with api.connect() as connection:
            connection.send(b"GARBAGE\r\n\r\n")
            assert connection.read_response().status == 400
    after = scrape(api)
    assert grown(before, after, "tailrace_refused_total") == expected
    assert grown(before, after, "tailrace_requests_total") == {}


def test_head_of_the_page_has_no_body(api: Api) -> None:
    response = api.request("HEAD", f"{api.server.base_path}/-/metrics")
    assert (response.status, response.body) == (200, b"")


def test_a_restart_counts_the_existing_buckets(api: Api) -> None:
    bucket = api.new_bucket()
    path = api.in_bucket(bucket, "kept")
    assert api.request("PUT", path, {"Content-Type": "text/plain"}, b"kept").status == 201
    before = scrape(api)
    api.close()
    api.server.restart()
    after = scrape(api)
    for name in ("tailrace_buckets", "tailrace_bucket_streams", "tailrace_bucket_bytes"):
        assert after.all(name) == before.all(name)
    assert after("tailrace_bucket_appends_total", bucket=bucket) == 0
