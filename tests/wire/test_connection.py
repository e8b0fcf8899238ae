"""Connections: pipelining, Expect, HTTP/1.0, half-closed clients, and limits."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http import Connection, format_request
from tests.support.server import ServerProcess
from tests.support.streams import Api, EventStream, check_common, check_problem
from tests.wire.conftest import BODY_BYTES_MAX
from tests.wire.refusal import head, post

TEXT = {"Content-Type": "text/plain"}


def raw_request(method: str, target: str, body: bytes | None = None, **headers: str) -> bytes:
    """The bytes of one request; header names with underscores."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        sent = TEXT | sent
    return format_request(method, target, sent, body, host="x")


# -- pipelining ----------------------------------------------------------------------------------


def conversation(path: str) -> list[tuple[bytes, str, int, bytes | None]]:
    """Requests of every kind, each with the method, status and body of its response."""
    return [
        (raw_request("PUT", path, b"one"), "PUT", 201, b""),
        (raw_request("GET", path), "GET", 200, b"one"),
        (raw_request("POST", path, b"two"), "POST", 204, b""),
        (raw_request("HEAD", path), "HEAD", 200, b""),
        (raw_request("GET", path), "GET", 200, b"onetwo"),
        (raw_request("POST", path, b"", Content_Type="text/plain"), "POST", 400, None),
        (raw_request("GET", path + "?offset=bad"), "GET", 400, None),
        (raw_request("HEAD", path + "-missing"), "HEAD", 404, b""),
        (raw_request("PATCH", path), "PATCH", 405, None),
        (raw_request("OPTIONS", path), "OPTIONS", 204, b""),
        (
            post(path, "Transfer-Encoding: chunked", body=b"2\r\nth\r\n3\r\nree\r\n0\r\n\r\n"),
            "POST",
            204,
            b"",
        ),
        (raw_request("GET", path + "?offset=now&live=false"), "GET", 200, b""),
        (raw_request("POST", path, b"end", Stream_Closed="true"), "POST", 204, b""),
        (raw_request("POST", path, b"late"), "POST", 409, None),
        (raw_request("GET", path + "?offset=now&live=long-poll"), "GET", 204, b""),
        (raw_request("GET", path), "GET", 200, b"onetwothreeend"),
        (raw_request("DELETE", path), "DELETE", 204, b""),
        (raw_request("DELETE", path), "DELETE", 404, None),
        (raw_request("GET", "/-/health"), "GET", 200, None),
    ]


def check_conversation(connection: Connection, path: str) -> None:
    for _, method, status, body in conversation(path):
        response = connection.read_response(method)
        assert response.status == status, (method, response)
        assert body is None or response.body == body
        check_common(response)


@pytest.mark.parametrize("times", [1, 5])
def test_responses_to_pipelined_requests_are_in_order(api: Api, times: int) -> None:
    """All requests in one packet; each sees the effects of earlier ones."""
    path = api.path()
    packet = b"".join(raw for raw, *_ in conversation(path))
    with api.connect() as connection:
        connection.send(packet * times)
        for _ in range(times):
            check_conversation(connection, path)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_requests_can_be_sent_in_pieces_of_any_size(api: Api, size: int) -> None:
    """Also byte by byte."""
    path = api.path()
    packet = b"".join(raw for raw, *_ in conversation(path))
    with api.connect() as connection:
        for start in range(0, len(packet), size):
            connection.send(packet[start : start + size])
        check_conversation(connection, path)


def test_many_pipelined_appends_keep_their_order(api: Api) -> None:
    """A thousand appends are all stored, in the order sent."""
    path = api.create()
    with api.connect() as connection:
        connection.send(b"".join(raw_request("POST", path, b"%03d;" % n) for n in range(1000)))
        offsets = []
        for _ in range(1000):
            response = connection.read_response("POST")
            assert response.status == 204
            offsets.append(response.headers["stream-next-offset"])
    assert offsets == sorted(set(offsets))
    assert api.read_all(path) == b"".join(b"%03d;" % n for n in range(1000))


def test_a_client_that_reads_after_sending_all_requests_gets_all_responses(api: Api) -> None:
    """Answers of 12 MB wait for a client that first sends all its requests; none is lost."""
    path = api.create(body=b"z" * 60_000)
    requests = raw_request("GET", path) * 200
    with api.connect() as connection:
        sender = threading.Thread(target=connection.send, args=(requests,))
        sender.start()
        for _ in range(200):
            assert connection.read_response().body == b"z" * 60_000
        sender.join()


def test_an_invalid_request_behind_valid_ones(api: Api) -> None:
    """Responses to the valid ones, then the error, then the end; later requests are ignored."""
    path = api.create()
    packet = raw_request("POST", path, b"a") + raw_request("POST", path, b"b")
    packet += b"BROKEN\r\n\r\n" + raw_request("POST", path, b"c")
    with api.connect() as connection:
        connection.send(packet)
        assert [connection.read_response("POST").status for _ in range(2)] == [204, 204]
        check_problem(connection.read_response(), 400, "request-malformed")
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"ab"


def test_an_oversized_request_behind_valid_ones(api: Api) -> None:
    """The 413 comes after the other responses."""
    path = api.create()
    packet = raw_request("POST", path, b"a")
    packet += post(path, f"Content-Length: {BODY_BYTES_MAX + 1}", body=b"x" * 1000)
    with api.connect() as connection:
        connection.send(packet)
        assert connection.read_response("POST").status == 204
        check_problem(connection.read_response(), 413, "body-too-large")
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"a"


def test_requests_after_connection_close_are_not_processed(api: Api) -> None:
    """RFC 9112, 9.6."""
    path = api.create()
    packet = raw_request("POST", path, b"a", Connection="close") + raw_request("POST", path, b"b")
    with api.connect() as connection:
        connection.send(packet)
        response = connection.read_response("POST")
        assert (response.status, response.headers["connection"]) == (204, "close")
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"a"


def test_a_client_that_sends_more_after_connection_close_gets_its_response(api: Api) -> None:
    """
    RFC 9112, 9.6: unread bytes at close would reset the connection, and the response would be lost.

    The client sends `Connection: close` and then more bytes; it gets its whole response.
    """
    path = api.create()
    for _ in range(40):
        api.append(path, b"z" * 60_000)
    for _ in range(5):
        with api.connect() as connection:
            connection.send(raw_request("GET", path, Connection="close"))
            threading.Event().wait(0.01)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(raw_request("GET", path) * 2000)
            threading.Event().wait(0.05)
            assert len(connection.read_response().body) > 1_000_000


def test_pipelining_behind_an_event_stream(api: Api) -> None:
    """The next request is processed after the event stream has ended."""
    path = api.create(body=b"x")
    with api.connect() as connection:
        events = EventStream(connection, f"{path}?offset=-1&live=sse")
        tail = api.tail(path)
        events.until(tail=tail)
        connection.send(raw_request("GET", "/-/health") + raw_request("HEAD", path))
        api.append(path, b"y", {"Stream-Closed": "true"})
        assert [event.kind for event in events] == ["data", "control"]
        assert connection.read_response().status == 200
        assert connection.read_response("HEAD").headers["stream-closed"] == "true"


def test_pipelining_behind_an_event_stream_in_one_packet(api: Api) -> None:
    """The same if both requests are in one packet and the event stream ends at once."""
    path = api.create(body=b"x", headers={"Stream-Closed": "true"})
    with api.connect() as connection:
        connection.send(raw_request("GET", f"{path}?offset=-1&live=sse") + raw_request("GET", path))
        body = connection.read_response().body
        assert b"streamClosed" in body
        assert connection.read_response().body == b"x"


def test_pipelining_behind_a_long_poll(api: Api) -> None:
    """The response to the poll comes first, even if the next request need not wait."""
    path = api.create()
    with api.connect() as connection:
        connection.send(raw_request("GET", f"{path}?offset=now&live=long-poll"))
        connection.send(raw_request("GET", "/-/health") + raw_request("GET", path))
        api.append(path, b"woken")
        first = connection.read_response()
        # The poll may have started after the append on a slow machine; then it ends empty.
        assert (first.status, first.body) in ((200, b"woken"), (204, b""))
        assert connection.read_response().status == 200
        assert connection.read_response().body == b"woken"


def test_an_append_pipelined_behind_a_long_poll_of_the_same_stream(api: Api) -> None:
    """The poll times out, then the append is processed."""
    path = api.create()
    with api.connect() as connection:
        connection.send(
            raw_request("GET", f"{path}?offset=now&live=long-poll")
            + raw_request("POST", path, b"x")
        )
        assert connection.read_response().status == 204
        assert connection.read_response("POST").status == 204
    assert api.read_all(path) == b"x"


def test_an_error_behind_an_event_stream_comes_after_it(api: Api) -> None:
    """The response to invalid bytes is not sent within the event stream."""
    path = api.create(body=b"x")
    with api.connect() as connection:
        events = EventStream(connection, f"{path}?offset=-1&live=sse")
        events.until(tail=api.tail(path))
        connection.send(b"BROKEN\r\n\r\n")
        api.append(path, b"y")
        events.until(tail=api.tail(path))
        api.close_stream(path)
        assert [event.kind for event in events] == ["control"]
        check_problem(connection.read_response(), 400, "request-malformed")
        assert connection.closed_by_peer()


# -- Expect: 100-continue ------------------------------------------------------------------------


def test_expect_continue(api: Api) -> None:
    """100 comes before the body is sent, the response after it."""
    path = api.create()
    with api.connect() as connection:
        connection.send(post(path, "Expect: 100-continue", "Content-Length: 3"))
        assert connection.read_head().status == 100
        connection.send(b"abc")
        assert connection.read_response("POST").status == 204
    assert api.read_all(path) == b"abc"


@pytest.mark.parametrize("value", ["100-Continue", "100-CONTINUE"])
def test_expect_is_case_insensitive(api: Api, value: str) -> None:
    """RFC 9110, 10.1.1."""
    path = api.create()
    with api.connect() as connection:
        connection.send(post(path, f"Expect: {value}", "Content-Length: 3"))
        assert connection.read_head().status == 100


def test_expect_with_a_body_that_is_too_large_is_413(api: Api) -> None:
    """The final response comes instead of 100."""
    path = api.create()
    with api.connect() as connection:
        connection.send(post(path, "Expect: 100-continue", f"Content-Length: {BODY_BYTES_MAX + 1}"))
        response = connection.read_response("POST")
        assert response.interim == []
        check_problem(response, 413, "body-too-large")
        assert connection.closed_by_peer()


def test_expect_of_http_1_0_is_ignored(api: Api) -> None:
    """RFC 9110, 10.1.1: a client of HTTP/1.0 would not understand a 100."""
    path = api.create()
    lines = ("Expect: 100-continue", "Content-Type: text/plain", "Content-Length: 3")
    with api.connect() as connection:
        connection.send(head(f"POST {path} HTTP/1.0", *lines) + b"abc")
        response = connection.read_response("POST")
        assert (response.status, response.interim) == (204, [])


def test_a_100_behind_an_event_stream_comes_after_it(api: Api) -> None:
    """The 100 belongs to the next request, and must not be sent within the event stream."""
    path = api.create(body=b"x")
    with api.connect() as connection:
        events = EventStream(connection, f"{path}?offset=-1&live=sse")
        events.until(tail=api.tail(path))
        connection.send(post(path, "Expect: 100-continue", "Content-Length: 3"))
        # Another connection's request after it: the server has seen both.
        assert api.get("/-/health").status == 200
        api.append(path, b"y", {"Stream-Closed": "true"})
        assert [event.kind for event in events] == ["data", "control"]
        connection.send(b"abc")
        assert connection.read_response("POST").status == 409


def test_a_100_behind_an_append_comes_after_its_response(api: Api) -> None:
    """An earlier 100 would be parsed as part of the response to the append."""
    path = api.create()
    with api.connect() as connection:
        connection.send(
            raw_request("POST", path, b"abc")
            + post(path, "Expect: 100-continue", "Content-Length: 3")
        )
        first = connection.read_response("POST")
        assert (first.status, first.interim) == (204, [])
        connection.send(b"def")
        assert connection.read_response("POST").status == 204
    assert api.read_all(path) == b"abcdef"


# -- HTTP/1.0 and the end of connections ----------------------------------------------------------


def test_http_1_0_closes(api: Api) -> None:
    """Without keep-alive the connection ends after the response; Host is not required."""
    path = api.create(body=b"x")
    with api.connect() as connection:
        connection.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        response = connection.read_response()
        assert (response.body, response.headers["connection"]) == (b"x", "close")
        assert connection.closed_by_peer()


def test_http_1_0_keep_alive(api: Api) -> None:
    """With keep-alive the connection stays open."""
    path = api.create(body=b"x")
    raw = f"GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode()
    with api.connect() as connection:
        for _ in range(3):
            connection.send(raw)
            response = connection.read_response()
            assert (response.body, response.headers["content-length"]) == (b"x", "1")
            assert response.headers["connection"] == "keep-alive"


@pytest.mark.parametrize(
    ("version", "option", "closes"),
    [
        ("1.1", "", False),
        ("1.1", ", close", True),
        ("1.0", "", True),
        ("1.0", ", keep-alive", False),
    ],
)
def test_an_upgrade_does_not_change_whether_the_connection_closes(
    api: Api, version: str, option: str, closes: bool
) -> None:
    """The Upgrade header is ignored, and the other options of Connection are not."""
    path = api.create(body=b"x")
    lines = (f"Connection: Upgrade, HTTP2-Settings{option}", "Upgrade: h2c", "HTTP2-Settings: AA")
    with api.connect() as connection:
        connection.send(head(f"GET {path} HTTP/{version}", *lines))
        response = connection.read_response()
        assert response.body == b"x"
        assert (response.headers.get("connection") == "close") is closes
        if closes:
            assert connection.closed_by_peer()
        else:
            assert connection.request("GET", path).body == b"x"


@pytest.mark.parametrize("keep_alive", ["", "Connection: keep-alive\r\n"])
def test_http_1_0_event_stream_has_no_chunks(api: Api, keep_alive: str) -> None:
    """HTTP/1.0 has no chunked coding: the body is plain and ends with the connection."""
    path = api.create(body=b"x", headers={"Stream-Closed": "true"})
    with api.connect() as connection:
        connection.send(f"GET {path}?offset=-1&live=sse HTTP/1.0\r\n{keep_alive}\r\n".encode())
        response = connection.read_response()
        assert "transfer-encoding" not in response.headers
        assert response.body.startswith(b"event: data\ndata:x\nid:")
        assert connection.closed_by_peer()


def test_a_half_closed_client_gets_its_response(api: Api) -> None:
    """As `printf … | nc` does."""
    path = api.create()
    with api.connect() as connection:
        connection.send(raw_request("POST", path, b"abc"))
        connection.sock.shutdown(socket.SHUT_WR)
        assert connection.read_response("POST").status == 204
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"abc"


@pytest.mark.parametrize("count", [2, 3, 50])
def test_a_half_closed_client_gets_all_its_responses(api: Api, count: int) -> None:
    """To several pipelined requests."""
    path = api.create()
    with api.connect() as connection:
        connection.send(raw_request("POST", path, b"abc") * count)
        connection.sock.shutdown(socket.SHUT_WR)
        for _ in range(count):
            assert connection.read_response("POST").status == 204
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"abc" * count


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_half_closed_live_reader_is_disconnected(api: Api, live: str) -> None:
    """Because it only waits for data."""
    path = api.create()
    with api.connect() as connection:
        connection.send(raw_request("GET", f"{path}?offset=now&live={live}"))
        connection.sock.shutdown(socket.SHUT_WR)
        while connection.sock.recv(65536):
            pass


def test_connections_that_are_reset_do_not_affect_other_clients(api: Api) -> None:
    """A reset at every stage of a request."""
    path = api.create()
    raw = raw_request("POST", path, b"x" * 50)
    waiting = [
        raw_request("GET", f"{path}?offset=now&live={live}") for live in ("long-poll", "sse")
    ]
    for data in (b"", *(raw[:size] for size in range(1, len(raw), 9)), *waiting):
        connection = api.connect()
        connection.send(data)
        connection.reset()
    assert api.read_all(path) == b""
    assert api.append(path, b"fine")


def test_empty_lines_before_a_request_are_skipped(api: Api) -> None:
    """RFC 9112, 2.2: a server should ignore at least one empty line there."""
    path = api.create(body=b"x")
    with api.connect() as connection:
        for _ in range(3):
            connection.send(b"\r\n\r\n" + raw_request("GET", path))
            assert connection.read_response().body == b"x"


def test_get_with_a_body_keeps_the_framing(api: Api) -> None:
    """The body has no meaning, but is read, so that it is not parsed as the next request."""
    path = api.create(body=b"x")
    body = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    with api.connect() as connection:
        for method in ("GET", "DELETE", "GET"):
            connection.send(raw_request(method, path, body) + raw_request("HEAD", "/-/health"))
            assert connection.read_response(method).status in (200, 204, 404)
            assert connection.read_response("HEAD").status == 200


# -- limits on connections ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that accepts four connections."""
    data_dir: Path = tmp_path_factory.mktemp("small")
    with ServerProcess(data_dir, "--engine", "memory", "--connections-max", "4") as server:
        yield server


def test_connections_max(small_server: ServerProcess) -> None:
    """Further connections get 503 with Retry-After until one is closed."""
    api = Api(small_server)
    taken = [api.connect() for _ in range(4)]
    for connection in taken:
        assert connection.request("GET", "/-/health").status == 200
    for speaks_first in (False, True):
        with api.connect() as refused:
            if speaks_first:
                refused.send(raw_request("GET", "/-/health"))
            response = refused.read_response()
            check_problem(response, 503, "too-many-connections")
            assert int(response.headers["retry-after"]) >= 1
            assert response.headers["connection"] == "close"
            assert refused.closed_by_peer()
    for connection in taken:
        assert connection.request("GET", "/-/health").status == 200
    taken.pop().close()
    for _ in range(200):
        with api.connect() as next_one:
            next_one.send(raw_request("GET", "/-/health"))
            if next_one.read_response().status == 200:
                break
    else:
        pytest.fail("the place that became free was never given away")
    for connection in taken:
        connection.close()
    api.close()
