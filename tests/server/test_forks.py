"""Forks over HTTP (today.md): headers, statuses, reads, deletion; beyond the public suite."""

from __future__ import annotations

import json

import pytest

from tests.support.looping import for_each
from tests.support.publishing import bootstrap, offset, publish, put_snapshot
from tests.support.streams import Api, check_problem, text_of, wait_until

TEXT = "text/plain"
JSON = "application/json"
START = offset(0, 0)
EMPTY_HEADERS = ("Stream-Forked-From", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset")


def put_fork(
    api: Api, source: str, path: str | None = None, body: bytes | None = None, **headers: str
) -> tuple[str, int]:
    """Returns the path of the fork, and the status."""
    path = path or api.path("fork")
    sent = {"Stream-Forked-From": source}
    sent.update({name.replace("_", "-"): value for name, value in headers.items()})
    return path, api.request("PUT", path, sent, body).status


def fork(api: Api, source: str, body: bytes | None = None, **headers: str) -> str:
    path, status = put_fork(api, source, None, body, **headers)
    assert status == 201
    return path


def removed(api: Api, path: str) -> bool:
    return api.head(path).status == 404


@for_each(
    ("header", "value"),
    [
        ("Stream-Forked-From", ""),
        ("Stream-Forked-From", "s"),
        ("Stream-Forked-From", "http://localhost/v1/stream/s"),
        ("Stream-Forked-From", "/v1/stream/"),
        ("Stream-Forked-From", "/v1/stream/a//b"),
        ("Stream-Forked-From", "/v1/stream/../s"),
        ("Stream-Forked-From", "/v1/stream/%zz"),
        ("Stream-Forked-From", "/v1/stream/s?offset=-1"),
        ("Stream-Forked-From", "/-/health"),
        ("Stream-Forked-From", "/another-bucket/s"),
        ("Stream-Fork-Offset", ""),
        ("Stream-Fork-Offset", "-1"),
        ("Stream-Fork-Offset", "now"),
        ("Stream-Fork-Offset", "5"),
        ("Stream-Fork-Offset", "0_0"),
        ("Stream-Fork-Sub-Offset", ""),
        ("Stream-Fork-Sub-Offset", "-1"),
        ("Stream-Fork-Sub-Offset", "abc"),
        ("Stream-Fork-Sub-Offset", "1.5"),
        ("Stream-Fork-Sub-Offset", "05"),
        ("Stream-Fork-Sub-Offset", "00"),
        ("Stream-Fork-Sub-Offset", "+1"),
        ("Stream-Fork-Sub-Offset", "1e3"),
        ("Stream-Fork-Sub-Offset", "9" * 20),
    ],
)
def test_malformed_headers_are_400(api: Api, header: str, value: str) -> None:
    source = api.create(body=b"abc")
    path = api.path()
    headers = {"Stream-Forked-From": source, "Stream-Fork-Offset": START, header: value}
    body = check_problem(api.request("PUT", path, headers), 400, "header-invalid")
    assert header in body["detail"]
    assert api.head(path).status == 404


@for_each("header", ["Stream-Fork-Offset", "Stream-Fork-Sub-Offset"])
def test_an_offset_needs_a_source(api: Api, header: str) -> None:
    """Syntax comes first: also where the target exists."""
    value = START if header == "Stream-Fork-Offset" else "0"
    for path in (api.path(), api.create()):
        response = api.request("PUT", path, {header: value, "Content-Type": TEXT})
        check_problem(response, 400, "header-invalid")


def test_each_header_may_be_given_once(api: Api) -> None:
    source = api.create(body=b"abc")
    host = f"Host: 127.0.0.1:{api.server.port}\r\n"
    for name, value in (
        ("Stream-Forked-From", source),
        ("Stream-Fork-Offset", START),
        ("Stream-Fork-Sub-Offset", "1"),
    ):
        sent = {"Stream-Forked-From": source, name: value}
        lines = "".join(f"{key}: {item}\r\n" for key, item in sent.items())
        with api.connect() as connection:
            connection.send(
                f"PUT {api.path()} HTTP/1.1\r\n{host}{lines}{name}: {value}\r\n"
                "Content-Length: 0\r\n\r\n".encode()
            )
            head = connection.read_head()
            assert head.status == 400


@pytest.mark.every_kind
def test_a_fork_is_in_the_bucket_of_its_source(api: Api) -> None:
    """Or both are on the base surface; another place is refused before the source is looked up."""
    base = api.server.base_path
    bucket, other = api.new_bucket(), api.new_bucket()
    source = api.create(body=b"abc", path=api.in_bucket(bucket, "a"))
    for path, wrong in (
        (api.in_bucket(other, "b"), source),
        (f"{base}/v1/stream/fork-elsewhere", source),
        (api.in_bucket(bucket, "b"), f"{base}/v1/stream/anything"),
        (api.in_bucket(bucket, "b"), f"{base}/{bucket}"),
        (api.in_bucket(bucket, "b"), f"{base}/{bucket}/a/snapshot"),
    ):
        response = api.request("PUT", path, {"Stream-Forked-From": wrong})
        check_problem(response, 400, "header-invalid")
    response = api.request("PUT", api.in_bucket(bucket, "b"), {"Stream-Forked-From": source})
    assert response.status == 201


def test_the_path_of_the_source_is_decoded_like_that_of_a_request(api: Api) -> None:
    stem = api.path("sp")
    source = api.create(body=b"abc", path=f"{stem}%20%C3%A9")
    for spelled in (f"{stem}%20%c3%a9", f"{stem}%20%C3%A9"):
        assert api.read_all(fork(api, spelled)) == b"abc"
    assert put_fork(api, f"{stem}%2520%C3%A9")[1] == 404
    assert api.read_all(source) == b"abc"


def test_refusals_have_their_order(api: Api) -> None:
    source = api.create(body=b"abc")
    fork(api, source)
    target = api.create()
    bad = {
        "Content-Type": JSON,
        "Stream-Fork-Offset": offset(9**9, 9**9),
        "Stream-Fork-Sub-Offset": "9",
    }

    def put(path: str, forked_from: str, **changes: str) -> tuple[int, str]:
        headers = {**bad, "Stream-Forked-From": forked_from, **changes}
        response = api.request("PUT", path, headers)
        return response.status, json.loads(response.body)["code"]

    missing = api.path()
    assert put(target, missing) == (409, "stream-exists")
    assert put(api.path(), missing) == (404, "fork-source-not-found")
    assert put(api.path(), source) == (409, "content-type-mismatch")
    text = {"Content-Type": TEXT}
    assert put(api.path(), source, **text) == (400, "offset-beyond-tail")
    at_tail = {**text, "Stream-Fork-Offset": offset(1, 3)}
    assert put(api.path(), source, **at_tail) == (400, "fork-sub-offset-beyond")
    misaligned = {**text, "Stream-Fork-Offset": offset(0, 1)}
    assert put(api.path(), source, **misaligned) == (400, "offset-misaligned")
    assert api.request("DELETE", source).status == 204
    assert put(source, missing) == (409, "stream-held")
    assert put(api.path(), source) == (409, "fork-source-gone")


@pytest.mark.every_kind
def test_a_fork_reads_as_one_stream(api: Api) -> None:
    source = api.create(JSON, b'[1,{"a": 2},3]')
    path = fork(api, source, b"[4]", Stream_Fork_Offset=START, Stream_Fork_Sub_Offset="2")
    api.append(source, b"[99]", content_type=JSON)
    tail = api.append(path, b"[5,6]", content_type=JSON)
    assert api.read_all(path) == b'[1,{"a": 2},4,5,6]'
    assert api.head(path).headers["content-type"] == JSON
    # From every boundary on, and up to every boundary.
    at, rest = START, []
    while at != tail:
        response = api.get(path, f"offset={at}")
        rest.append(json.loads(response.body))
        first = api.get(path, f"offset=-1&until={at}")
        assert json.loads(first.body) + rest[-1] == [1, {"a": 2}, 4, 5, 6]
        messages, size = (int(number) for number in at.split("_"))
        size += len(json.dumps(rest[-1][0])) + 1
        at = offset(messages + 1, size)
    assert len(rest) == 5


def test_small_chunks_cross_the_boundary(short: Api) -> None:
    """Chunks of 100 bytes: the boundary is inside of one."""
    source = short.create(body=b"a" * 60)
    for _ in range(3):
        short.append(source, b"b" * 60)
    path = fork(short, source)
    for _ in range(3):
        short.append(path, b"c" * 60)
    assert short.read_all(path) == b"a" * 60 + b"b" * 180 + b"c" * 180


def test_one_read_returns_all_of_a_large_fork(api: Api) -> None:
    """The response is streamed: its length is known before what is inherited is read."""
    batch = [{"n": number, "pad": "p" * 300} for number in range(2000)]
    source = api.create(JSON, json.dumps(batch).encode())
    path = source
    for level in range(4):
        path = fork(api, path, json.dumps([level]).encode())
        api.append(path, json.dumps(batch).encode(), content_type=JSON)
    response = api.get(path)
    assert len(response.body) > 3 << 20
    assert response.headers["content-length"] == str(len(response.body))
    expected = list(batch)
    for level in range(4):
        expected += [level, *batch]
    assert json.loads(response.body) == expected
    assert response.headers["stream-next-offset"] == api.tail(path)


def test_etags_are_those_of_the_fork(api: Api) -> None:
    source = api.create(body=b"abc")
    first, second = fork(api, source), fork(api, source)
    tags = {api.get(path, "offset=-1").headers["etag"] for path in (source, first, second)}
    assert len(tags) == 3


def test_live_readers_of_a_fork(api: Api) -> None:
    source = api.create(body=b"abc")
    path = fork(api, source)
    poll = api.get(path, "offset=-1&live=long-poll")
    assert (poll.status, poll.body) == (200, b"abc")
    with api.sse(path) as events:
        assert text_of(events.until(tail=offset(1, 3))) == "abc"
        api.append(source, b"not here")
        tail = api.append(path, b"here")
        assert text_of(events.until(tail=tail)) == "here"
        # Readers of a source are told of its deletion, also where its data stays.
        fork(api, path)
        assert api.request("DELETE", path).status == 204
        last = list(events)[-1]
        assert last.json.get("streamDeleted") is True


@pytest.mark.every_kind
def test_a_soft_deleted_stream(api: Api) -> None:
    """410 for GET, HEAD, POST and DELETE; 409 for PUT and for forking it."""
    source = api.create(body=b"abc")
    path = fork(api, source)
    assert api.request("DELETE", source).status == 204
    check_problem(api.get(source, "offset=-1"), 410, "stream-gone")
    check_problem(api.get(source, "offset=now&live=long-poll"), 410, "stream-gone")
    check_problem(api.get(source, "offset=-1&live=sse"), 410, "stream-gone")
    check_problem(api.post(source, b"x"), 410, "stream-gone")
    check_problem(api.request("POST", source, {"Stream-Closed": "true"}), 410, "stream-gone")
    check_problem(api.request("DELETE", source), 410, "stream-gone")
    assert api.head(source).status == 410
    check_problem(api.request("PUT", source, {"Content-Type": TEXT}), 409, "stream-held")
    assert put_fork(api, source)[1] == 409
    if api.bucket is not None:
        for below in ("snapshot", "bootstrap"):
            check_problem(api.get(f"{source}/{below}"), 410, "stream-gone")
        assert put_snapshot(api, source, offset(1, 3), b"s").status == 410
        listing = api.get(f"{api.server.base_path}/{api.bucket}/streams")
        listed = {item["stream_id"] for item in json.loads(listing.body)["streams"]}
        assert path.rsplit("/", 1)[1] in listed
        assert source.rsplit("/", 1)[1] not in listed
    assert api.read_all(path) == b"abc"
    assert api.request("DELETE", path).status == 204
    wait_until("the source is removed", lambda: removed(api, source))
    assert removed(api, path)
    api.create(path=source)


def test_deletion_in_any_order_keeps_what_is_needed(api: Api) -> None:
    first = api.create(body=b"1")
    second = fork(api, first, b"2")
    third = fork(api, second, b"3")
    low = fork(api, third, Stream_Fork_Offset=offset(1, 1))
    for path in (second, first, third):
        assert api.request("DELETE", path).status == 204
        assert api.head(path).status == 410
    # It inherits data of the first stream only, and is a fork of the third.
    assert api.read_all(low) == b"1"
    assert api.request("DELETE", low).status == 204
    for path in (first, second, third):
        wait_until("the chain is removed", lambda path=path: removed(api, path))


def test_an_expired_source_still_feeds_its_fork(api: Api) -> None:
    source = api.create(body=b"abc", headers={"Stream-TTL": "1"})
    path = fork(api, source, Stream_TTL="3600")
    wait_until("the source expires", lambda: api.head(source).status == 410)
    assert api.read_all(path) == b"abc"
    assert put_fork(api, source)[1] == 409
    assert api.request("DELETE", path).status == 204
    wait_until("the source is removed", lambda: removed(api, source))


def test_inherited_life(api: Api) -> None:
    source = api.create(headers={"Stream-TTL": "900"})
    assert 890 < int(api.head(fork(api, source)).headers["stream-ttl"]) <= 900
    assert int(api.head(fork(api, source, Stream_TTL="9000")).headers["stream-ttl"]) > 8990
    moment = "2099-01-01T00:00:00Z"
    source = api.create(headers={"Stream-Expires-At": moment})
    assert api.head(fork(api, source)).headers["stream-expires-at"] == moment
    head = api.head(fork(api, source, Stream_TTL="900")).headers
    assert "stream-expires-at" not in head and "stream-ttl" in head


def test_reading_a_fork_does_not_refresh_its_source(sliding: Api) -> None:
    source = sliding.create(body=b"abc", headers={"Stream-TTL": "1"})
    path = fork(sliding, source, Stream_TTL="3600")

    def expired() -> bool:
        sliding.read_all(path)
        return sliding.head(source).status == 410

    wait_until("the source expires", expired)


def test_no_response_shows_fork_headers(api: Api) -> None:
    source = api.create(body=b"abc")
    path = api.path("fork")
    created = api.request("PUT", path, {"Stream-Forked-From": source})
    for response in (created, api.head(path), api.get(path, "offset=-1")):
        assert not any(name.lower().startswith("stream-fork") for name, _ in response.headers)


def test_a_browser_may_send_the_headers(api: Api) -> None:
    asked = ", ".join(EMPTY_HEADERS)
    response = api.request(
        "OPTIONS", api.path(), {"Origin": "https://a.b", "Access-Control-Request-Headers": asked}
    )
    allowed = response.headers["access-control-allow-headers"].lower()
    assert all(name.lower() in allowed for name in EMPTY_HEADERS)


class TestInBuckets:
    """Snapshots, bootstrap and counts."""

    pytestmark = pytest.mark.parametrize("kind", ["bucketed"], indirect=True, scope="session")

    def test_bootstrap_of_a_fork(self, api: Api) -> None:
        source = api.create(JSON, b"[1,2,3]")
        publish(api, source, offset(1, 2), b"one")
        path = fork(api, source, b"[4]", Stream_Fork_Offset=offset(2, 4))
        api.append(source, b"[5]", content_type=JSON)
        publish(api, source, offset(4, 8), b"later")
        found = bootstrap(api, path)
        assert found.snapshot.body == b"one"
        assert found.messages == [b"2", b"4"]
        assert api.get(path, "offset=-1").status == 410
        # A fork before what is retained is gone, as a read there is.
        response = api.request(
            "PUT", api.path(), {"Stream-Forked-From": source, "Stream-Fork-Offset": START}
        )
        check_problem(response, 410, "offset-gone")
        # Its own snapshot replaces the inherited one, for this fork alone.
        publish(api, path, offset(3, 6), b"own")
        assert bootstrap(api, path).snapshot.body == b"own"
        assert bootstrap(api, source).snapshot.body == b"later"

    def test_a_bucket_counts_what_is_stored_once(self, api: Api) -> None:
        bucket = api.new_bucket()
        where = f"{api.server.base_path}/{bucket}"

        def counts() -> tuple[int, int]:
            listing = api.get(f"{api.server.base_path}/-/buckets", f"prefix={bucket}")
            (row,) = json.loads(listing.body)["buckets"]
            return row["streams"], row["bytes"]

        source = api.create(body=b"x" * 1000, path=f"{where}/a")
        path = f"{where}/b"
        assert put_fork(api, source, path, b"yy")[1] == 201
        assert counts() == (2, 1002)
        assert api.request("DELETE", source).status == 204
        assert counts() == (2, 1002)
        check_problem(api.request("DELETE", where), 409, "bucket-not-empty")
        assert api.request("DELETE", path).status == 204
        assert counts() == (0, 0)
        assert api.request("DELETE", where).status == 204

    def test_a_bucket_of_a_long_chain_can_be_deleted(self, api: Api) -> None:
        bucket = api.new_bucket()
        where = f"{api.server.base_path}/{bucket}"
        paths = [api.create(body=b"x", path=f"{where}/0")]
        for number in range(1, 150):
            paths.append(f"{where}/{number}")
            assert put_fork(api, paths[-2], paths[-1])[1] == 201
        assert api.read_all(paths[-1]) == b"x"
        for path in paths:
            assert api.request("DELETE", path).status == 204
        wait_until("the bucket is empty", lambda: api.request("DELETE", where).status in (204, 404))
