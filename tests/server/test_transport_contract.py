"""
Each kind of request and response, on every kind of server.

Goal: all transports, engines and surfaces behave the same. The other tests of this directory check
the rules of the protocol on one kind of server; the cases here check that a transport passes each
kind of request on, and each kind of response back.
"""

from __future__ import annotations

import gzip
import io
import json

import pyarrow.ipc
import pytest

from tests.support.http import Connection, Response
from tests.support.looping import for_each
from tests.support.streams import Api, check_common, check_problem

pytestmark = pytest.mark.every_kind


@pytest.fixture
def stream(api: Api) -> str:
    """The path of a stream in a bucket, which can have snapshots."""
    return api.create(path=api.in_bucket(api.new_bucket(), "stream"))


def own(api: Api, name: str) -> str:
    return f"{api.server.base_path}/-/{name}"


def send(connection: Connection, *parts: bytes) -> None:
    for part in parts:
        connection.send(part)


# -- writes ----------------------------------------------------------------------------------------


def test_create(api: Api) -> None:
    path = api.path()
    created = api.request("PUT", path, {"Content-Type": "text/plain"}, b"first")
    assert created.status == 201
    assert created.headers["location"] == api.url(path)
    check_common(created)
    assert api.request("PUT", path, {"Content-Type": "text/plain"}, b"first").status == 200
    check_problem(api.request("PUT", path, {"Content-Type": "text/html"}), 409)


def test_append(api: Api) -> None:
    path = api.create()
    appended = api.post(path, b"hello")
    assert (appended.status, appended.body) == (204, b"")
    check_common(appended)
    assert api.read_all(path) == b"hello"


def test_append_of_a_large_body(api: Api) -> None:
    path = api.create("application/octet-stream")
    body = bytes(range(256)) * 4096
    api.append(path, body, content_type="application/octet-stream")
    assert api.read_all(path) == body


def test_append_in_chunks(api: Api) -> None:
    path = api.create()
    with api.connect() as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
        send(connection, head.encode(), b"Transfer-Encoding: chunked\r\n\r\n")
        send(connection, b"3\r\none\r\n", b"4\r\n two\r\n", b"0\r\n\r\n")
        assert connection.read_response("POST").status == 204
    assert api.read_all(path) == b"one two"


def test_expect_continue(api: Api) -> None:
    path = api.create()
    with api.connect() as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
        send(connection, head.encode(), b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert connection.read_head().status == 100
        send(connection, b"body")
        assert connection.read_response("POST").status == 204
    assert api.read_all(path) == b"body"


def test_append_by_a_producer(api: Api) -> None:
    path = api.create()
    claim = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    first, retry = (api.post(path, b"x", claim) for _ in range(2))
    assert (first.status, retry.status) == (200, 204)
    assert retry.headers["producer-seq"] == "0"
    gap = api.post(path, b"x", claim | {"Producer-Seq": "2"})
    check_problem(gap, 409, "producer-gap")
    assert gap.headers["producer-expected-seq"] == "1"


def test_close(api: Api) -> None:
    path = api.create()
    assert api.close_stream(path).headers["stream-closed"] == "true"
    check_problem(api.post(path, b"late"), 409, "stream-closed")


def test_delete(api: Api) -> None:
    path = api.create()
    assert api.request("DELETE", path).status == 204
    check_problem(api.get(path), 404, "stream-not-found")


def test_repeated_header(api: Api) -> None:
    with api.connect() as connection:
        head = f"PUT {api.path()} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n"
        send(connection, head.encode(), b"Stream-TTL: 1\r\nStream-TTL: 2\r\n\r\n")
        check_problem(connection.read_response("PUT"), 400)


def test_name_of_percent_encoded_bytes(api: Api) -> None:
    path = api.create(path=api.path() + "%C3%A9")
    api.append(path, b"x")
    assert api.read_all(path.replace("%C3%A9", "%c3%a9")) == b"x"


# -- reads -----------------------------------------------------------------------------------------


def test_catch_up(api: Api) -> None:
    path = api.create()
    tail = api.append(path, b"hello")
    response = api.get(path, "offset=-1")
    assert (response.status, response.body) == (200, b"hello")
    assert response.headers["stream-next-offset"] == tail
    assert response.headers["stream-up-to-date"] == "true"
    check_common(response)
    assert api.get(path, f"offset={tail}").body == b""


def test_catch_up_in_several_responses(short: Api) -> None:
    path = short.create()
    for _ in range(3):
        short.append(path, b"x" * 80)
    assert short.get(path, "offset=-1").headers.get("stream-up-to-date") is None
    assert short.read_all(path) == b"x" * 240


def test_json(api: Api) -> None:
    path = api.create("application/json")
    api.append(path, b'[{"a": 1}, 2]', content_type="application/json")
    assert json.loads(api.get(path, "offset=-1").body) == [{"a": 1}, 2]


def test_not_modified(api: Api) -> None:
    path = api.create(body=b"x")
    etag = api.get(path, "offset=-1").headers["etag"]
    response = api.get(path, "offset=-1", {"If-None-Match": etag})
    assert (response.status, response.body) == (304, b"")


@for_each("size", [8 << 10, 100 << 10])
def test_compression(api: Api, size: int) -> None:
    path = api.create(body=b"x" * size)
    response = api.get(path, "offset=-1", {"Accept-Encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert gzip.decompress(response.body) == b"x" * size


def test_head(api: Api) -> None:
    path = api.create(body=b"x")
    response = api.head(path)
    assert (response.status, response.body) == (200, b"")
    assert response.headers["content-type"] == "text/plain"
    missing = api.head(api.path())
    assert (missing.status, missing.body) == (404, b"")


def test_long_poll(api: Api) -> None:
    path = api.create()
    tail = api.tail(path)
    with api.connect() as waiting:
        waiting.send_request("GET", f"{path}?offset={tail}&live=long-poll")
        api.append(path, b"news")
        response = waiting.read_response()
    assert (response.status, response.body) == (200, b"news")
    assert "stream-cursor" in response.headers


def test_long_poll_without_data(short: Api) -> None:
    path = short.create()
    response = short.get(path, f"offset={short.tail(path)}&live=long-poll")
    assert (response.status, response.body) == (204, b"")


def test_sse(api: Api) -> None:
    path = api.create(body=b"old")
    with api.sse(path) as events:
        assert events.next().data == "old"
        assert events.next().json["upToDate"] is True
        api.append(path, b"new")
        assert events.next().data == "new"
        events.next()
        api.close_stream(path)
        assert events.next().json["streamClosed"] is True
        assert events.next_or_end() is None


def test_sse_of_bytes_ends_after_its_time(short: Api) -> None:
    path = short.create("application/octet-stream", b"\xff")
    with short.sse(path) as events:
        assert events.next().data == "/w=="
        assert {event.kind for event in events} == {"control"}


# -- buckets ---------------------------------------------------------------------------------------


def test_bucket(api: Api) -> None:
    bucket = api.new_bucket()
    path = f"{api.server.base_path}/{bucket}"
    assert api.get(path).status == 200
    assert api.head(path).body == b""
    check_problem(api.request("PUT", path), 409)
    assert api.request("DELETE", path).status == 204
    check_problem(api.get(path), 404, "bucket-not-found")


def test_listing(api: Api) -> None:
    bucket = api.new_bucket()
    path = f"{api.server.base_path}/{bucket}/streams"
    for name in ("one", "two"):
        api.create(path=api.in_bucket(bucket, name))
    listed = json.loads(api.get(path, "prefix=t").body)
    assert [item["stream_id"] for item in listed["streams"]] == ["two"]
    assert api.head(path).body == b""
    check_problem(api.request("PUT", path), 400)


# -- snapshots and bootstrap -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 1 << 20])
def test_snapshot(api: Api, stream: str, size: int) -> None:
    tail = api.append(stream, b"x")
    body = b"s" * size
    path = f"{stream}/snapshot/{tail}"
    assert api.request("PUT", path, {"Content-Type": "text/plain"}, body).status == 204
    latest = api.get(f"{stream}/snapshot")
    assert latest.status == 307
    assert latest.headers["location"] == api.url(path)
    response = api.get(path)
    assert (response.status, response.body) == (200, body)
    assert response.headers["content-length"] == str(size)
    assert api.head(path).body == b""
    packed = api.get(path, headers={"Accept-Encoding": "gzip"})
    assert (gzip.decompress(packed.body) if size > 1024 else packed.body) == body
    check_problem(api.request("DELETE", path), 409)
    check_problem(api.get(stream, "offset=-1"), 410)


def test_snapshot_in_chunks(api: Api, stream: str) -> None:
    tail = api.append(stream, b"x")
    with api.connect() as connection:
        head = f"PUT {stream}/snapshot/{tail} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
        send(connection, head.encode(), b"Transfer-Encoding: chunked\r\n\r\n")
        send(connection, b"3\r\none\r\n", b"4\r\n two\r\n", b"0\r\n\r\n")
        assert connection.read_response("PUT").status == 204
    assert api.get(f"{stream}/snapshot/{tail}").body == b"one two"


def test_snapshot_that_is_rejected(api: Api, stream: str) -> None:
    headers = {"Content-Type": "text/plain"}
    beyond = f"{stream}/snapshot/0000000000000009_0000000000000009"
    check_problem(api.request("PUT", beyond, headers, b"x"), 409)
    check_problem(api.get(f"{stream}/snapshot"), 404, "snapshot-not-found")


def test_bootstrap(api: Api, stream: str) -> None:
    api.append(stream, b"one")
    api.append(stream, b"two")
    response = api.get(f"{stream}/bootstrap")
    assert response.status == 200
    assert response.headers["content-type"].startswith("multipart/mixed")
    assert b"\r\none\r\n" in response.body
    assert b"\r\ntwo\r\n" in response.body
    head = api.head(f"{stream}/bootstrap")
    assert (head.status, head.body) == (200, b"")


# -- bulk and admin --------------------------------------------------------------------------------


def reference(api: Api, stream: str) -> dict[str, str]:
    bucket, name = stream.removeprefix(api.server.base_path).split("/")[1:]
    return {"bucket": bucket, "stream": name}


def post_json(api: Api, name: str, content: object) -> Response:
    return api.request("POST", own(api, name), {}, json.dumps(content).encode())


def test_offsets(api: Api, stream: str) -> None:
    tail = api.append(stream, b"x")
    response = post_json(api, "offsets", {"places": [reference(api, stream) | {"message": 1}]})
    assert json.loads(response.body)["places"][0]["offset"] == tail


def test_rows(api: Api, stream: str) -> None:
    api.append(stream, b"hello")
    response = post_json(api, "rows", {"ranges": [reference(api, stream)]})
    assert response.status == 200
    rows = pyarrow.ipc.open_stream(io.BytesIO(response.body)).read_all()
    assert rows["value"].to_pylist() == [b"hello", None]
    check_problem(post_json(api, "rows", {}), 400)


def test_overview(api: Api, stream: str) -> None:
    named = reference(api, stream)
    listed = json.loads(api.get(own(api, "buckets"), f"prefix={named['bucket']}").body)
    assert listed["buckets"][0]["bucket_id"] == named["bucket"]
    assert api.get(own(api, "paths"), "limit=1").status == 200
    about = api.get(own(api, "about"), f"bucket={named['bucket']}&stream={named['stream']}")
    assert json.loads(about.body)["stream_id"] == named["stream"]
    crossing = api.get(own(api, "buckets"), headers={"Sec-Fetch-Site": "cross-site"})
    check_problem(crossing, 403)


def test_health_metrics_and_ui(api: Api) -> None:
    for name in ("health", "ready"):
        assert json.loads(api.get(own(api, name)).body) == {"status": "ok"}
    assert b"tailrace_requests_total" in api.get(own(api, "metrics")).body
    assert api.get(own(api, "ui")).status == 308
    assert b"<html" in api.get(own(api, "ui/")).body
    assert api.head(own(api, "ui/")).body == b""


def test_backup(api: Api, kind: str) -> None:
    response = api.request("POST", own(api, "backup"))
    if kind == "wire-memory":
        check_problem(response, 501)
    else:
        assert response.status == 200
        assert len(response.body) == int(response.headers["content-length"])


# -- errors and the rest ---------------------------------------------------------------------------


def test_errors(api: Api) -> None:
    path = api.create()
    check_problem(api.get(api.path()), 404, "stream-not-found")
    check_problem(api.get(path, "offset=nonsense"), 400)
    check_problem(api.get(own(api, "nothing")), 404)
    unknown = api.request("PATCH", path)
    check_problem(unknown, 405)
    assert unknown.headers["allow"] == "GET, HEAD, PUT, POST, DELETE, OPTIONS"


def test_preflight(api: Api) -> None:
    asked = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "PUT"}
    for path in (api.path(), own(api, "rows")):
        response = api.request("OPTIONS", path, asked)
        assert (response.status, response.body) == (204, b"")
        assert "PUT" in response.headers["access-control-allow-methods"]


def test_body_above_the_limit(api: Api) -> None:
    """It is rejected by its Content-Length, before it is sent."""
    path = api.create()
    with api.connect() as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
        send(connection, head.encode(), b"Content-Length: 99999999999\r\n\r\n")
        check_problem(connection.read_response("POST"), 413)
