"""Slow clients: each phase of a request has a deadline, which these tests shorten."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tailrace.server.transports.wire import connection as connection_module
from tailrace.server.transports.wire import server as server_module
from tests.support.in_process import InProcessServer
from tests.support.streams import check_problem
from tests.wire.refusal import head, post

SHORT_S = 0.3
# For deadlines that must not expire here; a test that waits for one times out.
LONG_S = 300.0


@pytest.fixture
def server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InProcessServer]:
    """A server with long deadlines, except for those that the test's marker names."""
    for name in ("REQUEST_HEAD_S", "REQUEST_BODY_IDLE_S", "KEEP_ALIVE_S", "WRITE_STALL_S"):
        monkeypatch.setattr(connection_module, name, request.param.get(name, LONG_S))
    monkeypatch.setattr(connection_module, "LINGER_S", SHORT_S)
    monkeypatch.setattr(server_module, "_TICK_S", 0.05)
    server = InProcessServer()
    yield server
    server.stop()


def deadline(*names: str, seconds: float = SHORT_S) -> pytest.MarkDecorator:
    """Shorten these deadlines for one test."""
    short = dict.fromkeys(names, seconds)
    return pytest.mark.parametrize("server", [short], indirect=True, ids=["-".join(names)])


def create(server: InProcessServer, path: str) -> None:
    with server.connect() as connection:
        assert connection.request("PUT", path, {"Content-Type": "text/plain"}).status == 201


@deadline("REQUEST_HEAD_S")
@pytest.mark.parametrize(
    "sent", [b"G", b"GET /v1", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA"]
)
def test_an_incomplete_head_is_408(server: InProcessServer, sent: bytes) -> None:
    """Then the connection is closed."""
    with server.connect() as connection:
        connection.send(sent)
        check_problem(connection.read_response(), 408, "request-timeout")
        assert connection.closed_by_peer()


@deadline("REQUEST_HEAD_S")
def test_a_head_that_is_sent_byte_by_byte_is_408(server: InProcessServer) -> None:
    """Slowloris: further bytes do not extend the deadline."""
    stop = threading.Event()
    with server.connect() as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n")

        def drip() -> None:
            while not stop.wait(0.05):
                try:
                    connection.send(b"X")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            check_problem(connection.read_response(), 408, "request-timeout")
            assert connection.closed_by_peer()
        finally:
            stop.set()
            dripping.join()


@deadline("REQUEST_HEAD_S")
def test_the_deadline_of_a_head_starts_with_its_first_byte(server: InProcessServer) -> None:
    """Time between requests is not counted."""
    with server.connect() as connection:
        for _ in range(3):
            assert connection.request("GET", "/-/health").status == 200
            threading.Event().wait(SHORT_S * 2)


@deadline("REQUEST_BODY_IDLE_S")
@pytest.mark.parametrize("framing", ["Content-Length: 9", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("sent", [b"", b"3\r\nab"])
def test_a_body_that_stops_is_408(server: InProcessServer, framing: str, sent: bytes) -> None:
    """And nothing is appended."""
    create(server, "/v1/stream/body")
    with server.connect() as connection:
        connection.send(post("/v1/stream/body", framing, body=sent))
        check_problem(connection.read_response(), 408, "request-timeout")
        assert connection.closed_by_peer()
    with server.connect() as connection:
        assert connection.request("GET", "/v1/stream/body").body == b""


@deadline("REQUEST_BODY_IDLE_S", seconds=1.0)
def test_a_slow_body_without_long_pauses_is_accepted(server: InProcessServer) -> None:
    """The deadline applies to each pause, not to the whole body."""
    create(server, "/v1/stream/slow")
    with server.connect() as connection:
        connection.send(post("/v1/stream/slow", "Content-Length: 10"))
        for _ in range(10):
            threading.Event().wait(0.15)
            connection.send(b"x")
        assert connection.read_response("POST").status == 204


@deadline("KEEP_ALIVE_S")
@pytest.mark.parametrize("first", [False, True])
def test_an_idle_connection_is_closed(server: InProcessServer, first: bool) -> None:
    """Before the first request or after it, without a response."""
    with server.connect() as connection:
        if first:
            assert connection.request("GET", "/-/health").status == 200
        assert connection.closed_by_peer()


@deadline("KEEP_ALIVE_S", "REQUEST_HEAD_S", "REQUEST_BODY_IDLE_S")
@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_waiting_reader_is_not_idle(server: InProcessServer, live: str) -> None:
    """No deadline applies to a client that waits for data."""
    path = "/v1/stream/waiting"
    create(server, path)
    with server.connect() as connection:
        connection.send(head(f"GET {path}?offset=now&live={live} HTTP/1.1"))
        threading.Event().wait(SHORT_S * 3)
        with server.connect() as writer:
            assert writer.request("POST", path, {"Content-Type": "text/plain"}, b"x").status == 204
        response = connection.read_head()
        assert response.status == 200
        assert b"x" in next(connection.iter_body(response)) or live == "sse"


@deadline("WRITE_STALL_S")
def test_a_client_that_never_reads_is_disconnected(server: InProcessServer) -> None:
    """So that its responses do not stay in memory."""
    check_connection_is_closed(server)


def check_connection_is_closed(server: InProcessServer) -> None:
    path = "/v1/stream/big"
    create(server, path)
    with server.connect() as connection:
        body = b"z" * 1_000_000
        response = connection.request("POST", path, {"Content-Type": "text/plain"}, body)
        assert response.status == 204
    with server.connect() as connection:
        # Far more than the socket's buffers hold.
        connection.send(head(f"GET {path} HTTP/1.1") * 50)
        threading.Event().wait(SHORT_S * 4)
        received = 0
        try:
            while piece := connection.sock.recv(1 << 20):
                received += len(piece)
        except ConnectionResetError:
            pass
        assert received < 50 * 1_000_000


@deadline("WRITE_STALL_S")
def test_a_client_that_never_reads_a_small_response_is_disconnected(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Goal: the deadline applies to any unsent bytes, not only after writing was paused.

    Method: writing is never paused; then responses are left unread as in the test above.
    """
    monkeypatch.setattr(connection_module, "WRITE_BUFFER_BYTES_HIGH", 1 << 30)
    check_connection_is_closed(server)
