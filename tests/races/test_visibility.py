"""What is acknowledged is visible at once, to everyone, and stays so."""

from __future__ import annotations

import threading
import time
from functools import partial

from tests.support.http import Connection, request
from tests.support.payloads import pack, unpack_all
from tests.support.reading import OCTETS, SseReader, read_all
from tests.support.server import ServerProcess
from tests.support.together import HANG_S, together

WRITERS = 8
SECONDS = 4.0


def test_acknowledged_appends_are_visible(server: ServerProcess, path: str) -> None:
    """
    Goal: after an append is acknowledged every read sees it, and the tail never goes back.

    Method: eight writers append to one stream for some seconds, long enough for the uneven disk
    to change its pace several times; each asks for the tail right after every acknowledgement.
    """
    assert request("PUT", server.url + path, {"Content-Type": OCTETS}).status == 201
    end = time.monotonic() + SECONDS

    def write(writer: str) -> int:
        with Connection.to(server.url, HANG_S) as connection:
            seen, seq = "", 0
            while time.monotonic() < end:
                body = pack(writer, seq, b"")
                response = connection.request("POST", path, {"Content-Type": OCTETS}, body)
                assert response.status == 204, response
                acknowledged = response.headers["stream-next-offset"]
                assert acknowledged > seen, "an append lies before an earlier one"
                tail = connection.request("HEAD", path).headers["stream-next-offset"]
                assert tail >= acknowledged, f"acknowledged to {acknowledged}, tail is {tail}"
                seen, seq = tail, seq + 1
        return seq

    counts = together([lambda name=f"w{n}": write(name) for n in range(WRITERS)])  # type: ignore[misc]
    with Connection.to(server.url, HANG_S) as connection:
        content = read_all(connection, path)
    assert content is not None
    assert len(unpack_all(content.raw)) == sum(counts)


def test_live_readers_get_everything_without_another_push(server: ServerProcess, path: str) -> None:
    """
    Goal: a reader at the tail gets every append, once and in order, and needs no later append to
    be woken for an earlier one.

    Method: bursts of concurrent appends, each followed by silence until an SSE reader and a
    long-poll have all that was acknowledged; a lost wake-up shows as silence that does not end.
    """
    octets = {"Content-Type": OCTETS}
    assert request("PUT", server.url + path, octets).status == 201
    rounds, burst = 60, 6
    arrived = {"sse": 0, "poll": 0}
    changed = threading.Condition()
    total = rounds * WRITERS * burst
    contents: dict[str, bytes] = {}

    def has_arrived(count: int) -> bool:
        return min(arrived.values()) == count

    def note(reader: str, data: bytes, content: bytearray) -> None:
        content += data
        with changed:
            arrived[reader] = len(unpack_all(bytes(content)))
            changed.notify_all()

    def listen() -> None:
        content = bytearray()
        with Connection.to(server.url, HANG_S) as connection:
            reader = SseReader(connection, path)
            for event in reader.events():
                if event.kind == "data":
                    note("sse", reader.payload(event), content)
                if arrived["sse"] == total:
                    break
        contents["sse"] = bytes(content)

    def poll() -> None:
        content = bytearray()
        offset = "-1"
        with Connection.to(server.url, HANG_S) as connection:
            while arrived["poll"] < total:
                response = connection.request("GET", f"{path}?offset={offset}&live=long-poll")
                assert response.status in (200, 204), response
                offset = response.headers["stream-next-offset"]
                note("poll", response.body, content)
        contents["poll"] = bytes(content)

    def write() -> None:
        connections = [Connection.to(server.url, HANG_S) for _ in range(WRITERS)]
        try:
            for number in range(rounds):
                for place in range(burst):
                    for writer, connection in enumerate(connections):
                        body = pack(f"w{writer}", number * burst + place, b"")
                        connection.send_request("POST", path, octets, body)
                for connection in connections:
                    for _ in range(burst):
                        assert connection.read_response("POST").status == 204
                expected = (number + 1) * WRITERS * burst
                with changed:
                    complete = changed.wait_for(partial(has_arrived, expected), HANG_S)
                assert complete, f"{expected} are acknowledged, readers have {arrived}"
        finally:
            for connection in connections:
                connection.close()

    together([listen, poll, write])
    with Connection.to(server.url, HANG_S) as connection:
        content = read_all(connection, path)
    assert content is not None
    assert contents == {"sse": content.raw, "poll": content.raw}
