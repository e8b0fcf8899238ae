"""What a connection owes its client: order, patience, a response to all that arrived, an end."""

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
    """Requests of every kind, and what each must be answered: method, status and body."""
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
def test_pipelined_requests_are_answered_in_order(api: Api, times: int) -> None:
    """All requests in one packet: every response comes, in order, each upon what was before it."""
    path = api.path()
    packet = b"".join(raw for raw, *_ in conversation(path))
    with api.connect() as connection:
        connection.send(packet * times)
        for _ in range(times):
            check_conversation(connection, path)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_pieces_of_any_size_make_the_same_requests(api: Api, size: int) -> None:
    """A slow client that sends byte by byte is served like a fast one."""
    path = api.path()
    packet = b"".join(raw for raw, *_ in conversation(path))
    with api.connect() as connection:
        for start in range(0, len(packet), size):
            connection.send(packet[start : start + size])
        check_conversation(connection, path)


def test_many_pipelined_appends_keep_their_order(api: Api) -> None:
    """A thousand appends in one go: all are in, in the order sent."""
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


def test_a_client_that_does_not_read_gets_everything_later(api: Api) -> None:
    """Answers of 12 MB wait for a client that first sends all its requests; none is lost."""
    path = api.create(body=b"z" * 60_000)
    requests = raw_request("GET", path) * 200
    with api.connect() as connection:
        sender = threading.Thread(target=connection.send, args=(requests,))
        sender.start()
        for _ in range(200):
            assert connection.read_response().body == b"z" * 60_000
        sender.join()


def test_a_broken_request_behind_good_ones(api: Api) -> None:
    """The good ones are answered first, then the refusal, then the end; nothing after it runs."""
    path = api.create()
    packet = raw_request("POST", path, b"a") + raw_request("POST", path, b"b")
    packet += b"BROKEN\r\n\r\n" + raw_request("POST", path, b"c")
    with api.connect() as connection:
        connection.send(packet)
        assert [connection.read_response("POST").status for _ in range(2)] == [204, 204]
        check_problem(connection.read_response(), 400, "request-malformed")
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"ab"


def test_an_oversized_request_behind_good_ones(api: Api) -> None:
    """413 comes in its turn too."""
    path = api.create()
    packet = raw_request("POST", path, b"a")
    packet += post(path, f"Content-Length: {BODY_BYTES_MAX + 1}", body=b"x" * 1000)
    with api.connect() as connection:
        connection.send(packet)
        assert connection.read_response("POST").status == 204
        check_problem(connection.read_response(), 413, "body-too-large")
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"a"


def test_nothing_runs_behind_connection_close(api: Api) -> None:
    """RFC 9112, 9.6: after a request with `Connection: close` no further one is processed."""
    path = api.create()
    packet = raw_request("POST", path, b"a", Connection="close") + raw_request("POST", path, b"b")
    with api.connect() as connection:
        connection.send(packet)
        response = connection.read_response("POST")
        assert (response.status, response.headers["connection"]) == (204, "close")
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"a"


def test_a_closing_answer_survives_what_is_sent_behind_it(api: Api) -> None:
    """
    RFC 9112, 9.6: unread bytes at close would reset the connection and take the response with them.

    The client asks for the end and sends more all the same; it must still get its whole response.
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
    """The next request waits until the event stream has ended, and is answered then."""
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
    """The same when both requests come together and the event stream ends at once."""
    path = api.create(body=b"x", headers={"Stream-Closed": "true"})
    with api.connect() as connection:
        connection.send(raw_request("GET", f"{path}?offset=-1&live=sse") + raw_request("GET", path))
        body = connection.read_response().body
        assert b"streamClosed" in body
        assert connection.read_response().body == b"x"


def test_pipelining_behind_a_long_poll(api: Api) -> None:
    """The waiting poll is answered first, even if what is behind it could be answered at once."""
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


def test_an_append_behind_the_long_poll_that_waits_for_it(api: Api) -> None:
    """One connection cannot wake itself: the poll times out, then the append is taken."""
    path = api.create()
    with api.connect() as connection:
        connection.send(
            raw_request("GET", f"{path}?offset=now&live=long-poll")
            + raw_request("POST", path, b"x")
        )
        assert connection.read_response().status == 204
        assert connection.read_response("POST").status == 204
    assert api.read_all(path) == b"x"


def test_a_refusal_behind_an_event_stream_does_not_disturb_it(api: Api) -> None:
    """Broken bytes behind a live response are answered after it, not into it."""
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
    """The go-ahead comes before the body is sent, the response after it."""
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


def test_expect_with_a_body_that_is_too_large(api: Api) -> None:
    """The final answer comes instead of the go-ahead, and the body is never asked for."""
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


def test_expect_behind_an_event_stream_does_not_disturb_it(api: Api) -> None:
    """A go-ahead that belongs to the next request must not land in the middle of this answer."""
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


def test_expect_behind_an_append_comes_after_its_answer(api: Api) -> None:
    """A 100 in front of another request's answer would be taken for that request's."""
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
    """With keep-alive it goes on."""
    path = api.create(body=b"x")
    raw = f"GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode()
    with api.connect() as connection:
        for _ in range(3):
            connection.send(raw)
            response = connection.read_response()
            assert (response.body, response.headers["content-length"]) == (b"x", "1")


@pytest.mark.parametrize("keep_alive", ["", "Connection: keep-alive\r\n"])
def test_http_1_0_event_stream_has_no_chunks(api: Api, keep_alive: str) -> None:
    """HTTP/1.0 knows no chunks: the body is plain and ends with the connection."""
    path = api.create(body=b"x", headers={"Stream-Closed": "true"})
    with api.connect() as connection:
        connection.send(f"GET {path}?offset=-1&live=sse HTTP/1.0\r\n{keep_alive}\r\n".encode())
        response = connection.read_response()
        assert "transfer-encoding" not in response.headers
        assert response.body.startswith(b"event: data\ndata:x\n\nevent: control\n")
        assert connection.closed_by_peer()


def test_a_half_closed_client_gets_its_answer(api: Api) -> None:
    """`printf … | nc` sends, closes its side, and waits."""
    path = api.create()
    with api.connect() as connection:
        connection.send(raw_request("POST", path, b"abc"))
        connection.sock.shutdown(socket.SHUT_WR)
        assert connection.read_response("POST").status == 204
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"abc"


@pytest.mark.parametrize("count", [2, 3, 50])
def test_a_half_closed_client_gets_all_its_answers(api: Api, count: int) -> None:
    """Also when several requests were on their way."""
    path = api.create()
    with api.connect() as connection:
        connection.send(raw_request("POST", path, b"abc") * count)
        connection.sock.shutdown(socket.SHUT_WR)
        for _ in range(count):
            assert connection.read_response("POST").status == 204
        assert connection.closed_by_peer()
    assert api.read_all(path) == b"abc" * count


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_half_closed_waiter_is_let_go(api: Api, live: str) -> None:
    """A half-closed client that only waits for data is disconnected."""
    path = api.create()
    with api.connect() as connection:
        connection.send(raw_request("GET", f"{path}?offset=now&live={live}"))
        connection.sock.shutdown(socket.SHUT_WR)
        while connection.sock.recv(65536):
            pass


def test_clients_that_vanish_leave_nothing_behind(api: Api) -> None:
    """Resets at every moment of a request do no harm to the next client."""
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
    """A body on GET means nothing, but it is read, so that it is not taken for a request."""
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
    """A server that takes four connections."""
    data_dir: Path = tmp_path_factory.mktemp("small")
    with ServerProcess(data_dir, "--engine", "memory", "--connections-max", "4") as server:
        yield server


def test_connections_max(small_server: ServerProcess) -> None:
    """The next connection is told 503 with Retry-After and closed; a place that frees is taken."""
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
