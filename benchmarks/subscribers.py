"""Many SSE subscribers, in their own process.

    python -m benchmarks.subscribers HOST PORT PATH COUNT

Prints ``ready`` when every subscriber has the head of its response, follows the
stream until ``stop`` is read from standard input and no bytes arrive for a
while, then prints one JSON line. While the stream is live it only records the
time and the bytes, to add as little delay as possible; it parses them
afterwards. The clock is the monotonic one, which all processes share.
"""

from __future__ import annotations

import gc
import json
import os
import re
import select
import socket
import sys
import time
from bisect import bisect_right
from dataclasses import dataclass, field

from benchmarks.blocking import make_request
from benchmarks.machine import allow_many_files

MESSAGE_BYTES = 256
CONNECTING_MAX = 50
CONNECT_SECONDS = 30.0
QUIET_SECONDS = 1.0
STOP_SECONDS = 30.0
READ_BYTES = 16384

_MARK = re.compile(rb"@(\d{8}) (\d{20});")


def make_message(number: int, sent_ns: int) -> bytes:
    """A message of 256 bytes that ends with its number and the time it was sent."""
    mark = f"@{number:08d} {sent_ns:020d};"
    return mark.rjust(MESSAGE_BYTES, "x").encode("ascii")


@dataclass
class Subscriber:
    """One connection and its received bytes, with their times."""

    connection: socket.socket
    pieces: list[tuple[int, bytes]] = field(default_factory=list)

    def has_head(self) -> bool:
        """Whether the head of the response is complete."""
        return b"\r\n\r\n" in b"".join(piece for _, piece in self.pieces)


class Receiver:
    """All subscribers, and the loop that waits for their bytes."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self._address = (host, port)
        self._request = make_request("GET", f"{path}?offset=now&live=sse")
        self._poll = select.epoll()
        self.subscribers: dict[int, Subscriber] = {}
        self.cut_off = 0

    def connect(self, count: int) -> None:
        """Open the connections, some at a time, and wait for the heads."""
        while len(self.subscribers) < count:
            opened = [
                self._open() for _ in range(min(CONNECTING_MAX, count - len(self.subscribers)))
            ]
            deadline = time.monotonic() + CONNECT_SECONDS
            while not all(subscriber.has_head() for subscriber in opened):
                if time.monotonic() > deadline:
                    raise SystemExit("a subscriber got no response")
                self.receive(0.1)
        for subscriber in self.subscribers.values():
            if not subscriber.pieces[0][1].startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"a subscriber was rejected: {subscriber.pieces[0][1]!r}")

    def follow(self) -> None:
        """Receive until the command to stop, and until no bytes arrive for a while."""
        control = sys.stdin.fileno()
        self._poll.register(control, select.EPOLLIN)
        while control not in self.receive(1.0):
            pass
        self._poll.unregister(control)
        deadline = time.monotonic() + STOP_SECONDS
        while self.receive(QUIET_SECONDS) and time.monotonic() < deadline:
            pass

    def receive(self, timeout: float) -> list[int]:
        """Read from every connection that has bytes; returns what was ready."""
        ready = self._poll.poll(timeout)
        subscribers = self.subscribers
        clock = time.monotonic_ns
        for handle, _ in ready:
            subscriber = subscribers.get(handle)
            if subscriber is None:
                continue
            data = os.read(handle, READ_BYTES)
            if data:
                subscriber.pieces.append((clock(), data))
            else:
                self._poll.unregister(handle)
                self.cut_off += 1
        return [handle for handle, _ in ready]

    def _open(self) -> Subscriber:
        connection = socket.create_connection(self._address, timeout=CONNECT_SECONDS)
        connection.sendall(self._request)
        connection.setblocking(False)
        subscriber = Subscriber(connection)
        self.subscribers[connection.fileno()] = subscriber
        self._poll.register(connection.fileno(), select.EPOLLIN)
        return subscriber


def find_messages(pieces: list[tuple[int, bytes]]) -> list[tuple[int, float]]:
    """The messages in one response: each one's number and its delay in milliseconds.

    A message counts as received when its last byte arrives.
    """
    ends: list[int] = []
    for _, piece in pieces:
        ends.append(len(piece) + (ends[-1] if ends else 0))
    body, chunks = _without_framing(b"".join(piece for _, piece in pieces))
    found: list[tuple[int, float]] = []
    for match in _MARK.finditer(body):
        in_body, in_answer = chunks[bisect_right(chunks, match.end() - 1, key=_in_body) - 1]
        last_byte = in_answer + match.end() - 1 - in_body
        received_ns = pieces[bisect_right(ends, last_byte)][0]
        found.append((int(match[1]), (received_ns - int(match[2])) / 1e6))
    return found


def _in_body(chunk: tuple[int, int]) -> int:
    return chunk[0]


def _without_framing(response: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The body of a response, and where each of its chunks begins.

    The latter are pairs of (position in the body, position in the response).
    """
    at = response.index(b"\r\n\r\n") + 4
    if b"transfer-encoding: chunked" not in response[:at].lower():
        return response[at:], [(0, at)]
    body = bytearray()
    chunks: list[tuple[int, int]] = []
    while (line_end := response.find(b"\r\n", at)) >= 0:
        size = int(response[at:line_end].split(b";")[0], 16)
        if size == 0:
            break
        start = line_end + 2
        chunks.append((len(body), start))
        body += response[start : start + size]
        at = start + size + 2
    return bytes(body), chunks


def _percentile(ordered: list[float], share: float) -> float:
    """A percentile of an ordered list; 0 of an empty one."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def main() -> None:
    """Follow a stream with many subscribers and print the result."""
    host, port, path, count = sys.argv[1:5]
    allow_many_files()
    gc.disable()  # a collection would delay what is being timed
    receiver = Receiver(host, int(port), path)
    receiver.connect(int(count))
    print("ready", flush=True)
    receiver.follow()
    delays: list[float] = []
    distinct = 0
    for subscriber in receiver.subscribers.values():
        messages = find_messages(subscriber.pieces)
        distinct += len({number for number, _ in messages})
        delays += (delay for _, delay in messages)
    delays.sort()
    print(
        json.dumps(
            {
                "received": len(delays),
                "distinct": distinct,
                "cut_off": receiver.cut_off,
                "p50_ms": _percentile(delays, 0.50),
                "p99_ms": _percentile(delays, 0.99),
                "max_ms": delays[-1] if delays else 0.0,
            }
        )
    )


if __name__ == "__main__":
    main()
