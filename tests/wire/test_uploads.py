"""Snapshot uploads and other requests pipelined on one connection."""

from __future__ import annotations

import pytest

from tests.support.http import format_request
from tests.support.publishing import (
    CHUNK_BYTES,
    new_stream,
    offset,
    publish,
    snapshot_files,
    wait_for_files,
)
from tests.support.streams import Api

HOST = "test"


@pytest.fixture
def path(api: Api) -> str:
    return new_stream(api, "text/plain", b"abc")


def chunked(path: str, body: bytes, trailers: int = 0) -> bytes:
    """A chunked upload of a snapshot."""
    head = f"PUT {path}/snapshot/{offset(1, 3)} HTTP/1.1\r\nHost: {HOST}\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n"
    fields = "".join(f"X-{at}: x\r\n" for at in range(trailers)).encode()
    return head.encode() + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, fields)


def test_an_upload_that_is_rejected_at_its_end_leaves_no_file(api: Api, path: str) -> None:
    """
    Goal: no file stays open or on disk, whatever request comes next.

    Method: too many trailers after a large body, and the next request in the same packet.
    """
    before = snapshot_files(api)
    following = format_request("GET", path, host=HOST)
    for _ in range(3):
        with api.connect() as connection:
            raw = chunked(path, b"x" * (CHUNK_BYTES + 7), trailers=120)
            connection.send(raw + following)
            assert connection.read_response().status == 431
    wait_for_files(api, before, 0)


def test_a_rejected_upload_behind_a_waiting_request_leaves_no_file(api: Api, path: str) -> None:
    before = snapshot_files(api)
    poll = format_request("GET", f"{path}?offset={offset(1, 3)}&live=long-poll", host=HOST)
    following = format_request("GET", path, host=HOST)
    raw = poll + chunked(path, b"x" * (CHUNK_BYTES + 7), trailers=120) + following
    with api.connect() as connection:
        connection.send(raw)
        assert connection.read_response().status == 204
        assert connection.read_response().status == 431
    wait_for_files(api, before, 0)


def test_a_stream_is_created_again_and_its_snapshot_published_in_one_packet(
    api: Api, path: str
) -> None:
    """Requests of one connection are processed in order: the snapshot is of the new stream."""
    parts = (
        format_request("DELETE", path, host=HOST),
        format_request("PUT", path, {"Content-Type": "text/plain"}, b"xyz", host=HOST),
        format_request("PUT", f"{path}/snapshot/{offset(1, 3)}", (), b"state", host=HOST),
    )
    with api.connect() as connection:
        connection.send(b"".join(parts))
        assert [connection.read_response().status for _ in parts] == [204, 201, 204]
    assert api.head(path).headers["stream-snapshot-offset"] == offset(1, 3)


def test_a_pipelined_upload_that_expects_100_gets_it_in_order(api: Api, path: str) -> None:
    """RFC 9110, 10.1.1: after the head the server must send 100 or a final status."""
    append = format_request("POST", path, {"Content-Type": "text/plain"}, b"x", host=HOST)
    headers = {"Expect": "100-continue", "Content-Length": "5"}
    head = format_request("PUT", f"{path}/snapshot/{offset(1, 3)}", headers, host=HOST)
    with api.connect() as connection:
        connection.send(append + head)
        assert connection.read_response().status == 204
        assert connection.read_head().status == 100
        connection.send(b"state")
        assert connection.read_response().status == 204


def test_two_uploads_on_one_connection(api: Api, path: str) -> None:
    publish(api, path, offset(1, 3), b"state")
    tail = api.append(path, b"def")
    publish(api, path, tail, b"later")
    assert api.head(path).headers["stream-snapshot-offset"] == tail


def test_an_upload_without_a_length_is_an_empty_snapshot(api: Api, path: str) -> None:
    """As `curl -X PUT` sends it: without Content-Length and chunks."""
    tail = api.tail(path)
    with api.connect() as connection:
        connection.send(f"PUT {path}/snapshot/{tail} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert connection.read_response().status == 204
        response = connection.request("GET", f"{path}/snapshot/{tail}")
        assert (response.status, response.body) == (200, b"")
