"""Closing a stream while others read and write it (§4.1, §5.2, §5.3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.support.chance import seeded
from tests.support.http import Connection, Response, request
from tests.support.payloads import pack, unpack_all
from tests.support.reading import JSON, OCTETS, Event, SseReader, read_all
from tests.support.server import ServerProcess
from tests.support.tiers import slow_but
from tests.support.together import HANG_S, together

ROUNDS = 120
CLOSE = {"Stream-Closed": "true"}


@pytest.mark.parametrize("content_type", slow_but([JSON], ["text/plain", OCTETS, JSON]))
def test_readers_get_the_last_bytes_before_the_end(
    server: ServerProcess, path: str, content_type: str
) -> None:
    """
    Goal: a reader that waits when a stream is closed with a last message gets that message first,
    then the closure (§4.1, §5.7, §5.8).

    Method: many times over, a long-poll and two SSE readers go to the tail of a new stream and
    race with an append that closes it; sometimes another append goes right before it.
    """
    last = b'{"n":2}' if content_type == JSON else b"two\x20"
    before = b'{"n":1}' if content_type == JSON else b"one\x20"
    typed = {"Content-Type": content_type}
    with seeded("close", content_type) as chance, Connection.to(server.url, HANG_S) as writer:
        for number in range(ROUNDS):
            stream = f"{path}/{number}"
            start = writer.request("PUT", stream, typed).headers["stream-next-offset"]
            two = chance.random() < 0.5
            delay_s = chance.choice([0, 0, 0.001, 0.005])

            def write(stream: str = stream, two: bool = two, delay_s: float = delay_s) -> bytes:
                time.sleep(delay_s)
                if two:
                    assert writer.request("POST", stream, typed, before).status == 204
                response = writer.request("POST", stream, {**typed, **CLOSE}, last)
                assert response.status == 204
                assert response.headers["stream-closed"] == "true"
                return b""

            def poll(stream: str = stream, start: str = start) -> bytes:
                return _long_poll_to_the_end(server.url, stream, start)

            def listen(stream: str = stream, start: str = start) -> bytes:
                return _sse_to_the_end(server.url, stream, start)

            actions: list[Callable[[], bytes]] = [write, poll, listen, listen]
            _, polled, first, second = together(actions)
            whole = read_all(writer, stream)
            assert whole is not None
            assert whole.closed
            if content_type == JSON:
                assert whole.elements == ([before, last] if two else [last])
            else:
                assert whole.raw == (before + last if two else last)
                assert polled == first == second == whole.raw


def _long_poll_to_the_end(url: str, stream: str, offset: str) -> bytes:
    """Long-poll until the stream is closed; the bytes that came."""
    found = b""
    with Connection.to(url, HANG_S) as connection:
        while True:
            response = connection.request("GET", f"{stream}?offset={offset}&live=long-poll")
            assert response.status in (200, 204), response
            offset = response.headers["stream-next-offset"]
            found += response.body
            if response.headers.get("stream-closed") == "true":
                tail = connection.request("HEAD", stream).headers["stream-next-offset"]
                assert offset == tail, "the closure came before the last bytes"
                return found


def _sse_to_the_end(url: str, stream: str, offset: str) -> bytes:
    """Read over SSE until the response ends; the bytes that came."""
    found = b""
    with Connection.to(url, HANG_S) as connection:
        reader = SseReader(connection, stream, offset)
        events: list[Event] = list(reader.events())
        for event in events:
            if event.kind == "data":
                found += reader.payload(event)
        closings = [event.kind == "control" and "streamClosed" in event.data for event in events]
        assert closings.count(True) == 1, events
        assert closings[-1], events
        tail = connection.request("HEAD", stream).headers["stream-next-offset"]
        assert events[-1].control["streamNextOffset"] == tail
    return found


@pytest.mark.parametrize("final", [b"", pack("final", 0, b"the end")], ids=["alone", "with-body"])
def test_close_races_appends(server: ServerProcess, path: str, final: bytes) -> None:
    """
    Goal: an acknowledged close is the end: nothing is acknowledged that is sent after it, nothing
    is stored behind it, and what is stored is what was acknowledged (§4.1, §5.3).

    Method: eight writers append as fast as they can until they are refused; one client closes the
    stream in the middle of it. Offsets, acknowledgements and the content are compared.
    """
    octets = {"Content-Type": OCTETS}
    with seeded("close-appends", final) as chance:
        for number in range(ROUNDS // 4):
            stream = f"{path}/{number}"
            assert request("PUT", server.url + stream, octets).status == 201
            closed = threading.Event()
            delay_s = chance.uniform(0, 0.05)
            acknowledged: dict[tuple[str, int], str] = {}

            def append(
                writer: str,
                stream: str = stream,
                closed: threading.Event = closed,
                acknowledged: dict[tuple[str, int], str] = acknowledged,
            ) -> Response:
                with Connection.to(server.url, HANG_S) as connection:
                    for seq in range(100_000):
                        was_closed = closed.is_set()
                        body = pack(writer, seq, b"x" * (seq % 50))
                        response = connection.request("POST", stream, octets, body)
                        if response.status == 409:
                            assert response.headers["stream-closed"] == "true"
                            return response
                        assert response.status == 204, response
                        assert not was_closed, "an append after the close was acknowledged"
                        acknowledged[writer, seq] = response.headers["stream-next-offset"]
                raise AssertionError("the stream was never closed")

            def close(
                stream: str = stream, closed: threading.Event = closed, delay_s: float = delay_s
            ) -> Response:
                time.sleep(delay_s)
                headers = {**octets, **CLOSE}
                response = request("POST", server.url + stream, headers, final, HANG_S)
                closed.set()
                assert response.status == 204, response
                return response

            writers = [lambda name=f"w{n}": append(name) for n in range(8)]
            *refusals, closing = together([*writers, close])
            end = closing.headers["stream-next-offset"]
            if final:
                acknowledged["final", 0] = end
            with Connection.to(server.url, HANG_S) as connection:
                content = read_all(connection, stream)
                again = connection.request("POST", stream, CLOSE)
            assert content is not None
            assert content.closed
            assert content.next_offset == end
            assert {response.headers["stream-next-offset"] for response in refusals} == {end}
            assert (again.status, again.headers["stream-next-offset"]) == (204, end)
            found = [
                ((message.writer, message.seq), message.end) for message in unpack_all(content.raw)
            ]
            expected = sorted(acknowledged.items(), key=lambda item: item[1])
            assert found == [(key, int(token.partition("_")[2])) for key, token in expected]
