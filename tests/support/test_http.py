"""The raw HTTP client that other tests rely on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.http import Connection, ProtocolError, format_request

Serve = Callable[[bytes], Connection]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Returns a connection to a server that sends these bytes, then closes."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    connections: list[Connection] = []

    def start(response: bytes) -> Connection:
        def run() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(response)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        connections.append(Connection("127.0.0.1", listener.getsockname()[1], timeout=60))
        return connections[-1]

    yield start
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    listener.close()


def test_reads_two_responses_of_one_connection(serve: Serve) -> None:
    connection = serve(
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-A: 1\r\nx-a: 2\r\n\r\nabc"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1;x=y\r\nf\r\n0\r\n\r\n"
    )
    first = connection.read_response()
    assert (first.status, first.reason, first.body) == (200, "OK", b"abc")
    assert first.headers.get_all("X-A") == ["1", "2"]
    assert connection.read_response().body == b"def"
    assert connection.closed_by_peer()


def test_a_repeated_header_is_an_error(serve: Serve) -> None:
    headers = serve(b"HTTP/1.1 204 No Content\r\nA: 1\r\nA: 2\r\n\r\n").read_response().headers
    with pytest.raises(ProtocolError, match="2 times"):
        headers.get("a")


def test_reads_until_close_and_keeps_interim_responses(serve: Serve) -> None:
    response = serve(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest").read_response()
    assert response.body == b"rest"
    assert [head.status for head in response.interim] == [100]


@pytest.mark.parametrize("head", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 X\r\n\r\n"])
def test_statuses_without_a_body(serve: Serve, head: bytes) -> None:
    assert serve(head).read_response().body == b""


def test_a_response_to_head_has_no_body(serve: Serve) -> None:
    response = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").read_response("HEAD")
    assert (response.headers["content-length"], response.body) == ("9", b"")


def test_a_body_cut_short_is_an_error(serve: Serve) -> None:
    with pytest.raises(ProtocolError, match="before the body's end"):
        serve(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").read_response()


def test_a_request_gets_host_and_length_unless_given() -> None:
    assert format_request("POST", "/x", {"A": "b"}, b"hi", host="h:1") == (
        b"POST /x HTTP/1.1\r\nHost: h:1\r\nA: b\r\nContent-Length: 2\r\n\r\nhi"
    )
    chunked = format_request(
        "POST", "/", [("Transfer-Encoding", "chunked")], b"0\r\n\r\n", host="h"
    )
    assert b"Content-Length" not in chunked
