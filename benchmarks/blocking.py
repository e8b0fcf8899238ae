"""A plain HTTP client on one blocking connection.

It measures how fast a server responds to one client, so it does as little as
possible: it sends prepared bytes, reads into one large buffer and looks at the
body only on request.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from benchmarks.model import STREAMS_AT, BenchmarkError

BUFFER_BYTES = 1 << 20
TIMEOUT_SECONDS = 60.0

Sink = Callable[[memoryview], None]


@dataclass(frozen=True)
class Response:
    """The response to one request; the sink received the body."""

    status: int
    headers: dict[str, str]
    body_bytes: int


def make_request(
    method: str,
    path: str,
    *,
    content_type: str | None = None,
    body: bytes = b"",
    root: str = STREAMS_AT,
) -> bytes:
    """The bytes of one HTTP/1.1 request for a stream, or for a path under another root."""
    head = f"{method} {root}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if content_type is not None:
        head += f"Content-Type: {content_type}\r\n"
    if body or method in ("PUT", "POST"):
        head += f"Content-Length: {len(body)}\r\n"
    return head.encode("ascii") + b"\r\n" + body


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """The status and the headers (names in lower case) of a response's head."""
    lines = head.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(lines[0].split(" ", 2)[1]), headers


class Connection:
    """One kept-open connection."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._start = 0
        self._end = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send a part of a request."""
        self._socket.sendall(data)

    def exchange(self, request: bytes, sink: Sink | None = None) -> Response:
        """Send one request and read its whole response."""
        self._socket.sendall(request)
        status, headers = parse_head(self._read_until(b"\r\n\r\n"))
        if request.startswith(b"HEAD ") or status in (204, 304):
            return Response(status, headers, 0)
        if headers.get("transfer-encoding", "").lower() == "chunked":
            length = self._read_chunks(sink)
        else:
            length = int(headers.get("content-length", "0"))
            self._read_exactly(length, sink)
        return Response(status, headers, length)

    def expect(self, status: int, request: bytes, sink: Sink | None = None) -> Response:
        """Like :meth:`exchange`, but fail on any other status."""
        response = self.exchange(request, sink)
        if response.status != status:
            line = request.split(b"\r\n", 1)[0].decode("ascii")
            raise BenchmarkError(f"{line}: expected {status}, got {response.status}")
        return response

    def read_stream(self, path: str, on_page: Callable[[bytes], None] | None = None) -> int:
        """Read a stream from its start to its end; returns the number of body bytes.

        Follows ``Stream-Next-Offset`` until the server says ``Stream-Up-To-Date``.
        Each body is passed to ``on_page``, if it is given.
        """
        offset, total = "-1", 0
        while True:
            page = bytearray()
            sink: Sink | None = None if on_page is None else page.extend
            response = self.expect(200, make_request("GET", f"{path}?offset={offset}"), sink)
            total += response.body_bytes
            if on_page is not None:
                on_page(bytes(page))
            if response.headers.get("stream-up-to-date") == "true":
                return total
            following = response.headers.get("stream-next-offset", "")
            if following in ("", offset):
                raise BenchmarkError(f"reading {path} does not get past offset {offset}")
            offset = following

    def _fill(self) -> None:
        """Receive more bytes after those that are still unread."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == BUFFER_BYTES:
            waiting = bytes(self._buffer[self._start : self._end])
            self._buffer[: len(waiting)] = waiting
            self._start, self._end = 0, len(waiting)
        count = self._socket.recv_into(self._buffer[self._end :])
        if count == 0:
            raise BenchmarkError("the server closed the connection in the middle of a response")
        self._end += count

    def _read_until(self, mark: bytes) -> bytes:
        """Take the bytes before a mark, and drop the mark."""
        while True:
            waiting = bytes(self._buffer[self._start : min(self._end, self._start + 16384)])
            at = waiting.find(mark)
            if at >= 0:
                self._start += at + len(mark)
                return waiting[:at]
            self._fill()

    def _read_exactly(self, length: int, sink: Sink | None) -> None:
        while length > 0:
            if self._start == self._end:
                self._fill()
            count = min(length, self._end - self._start)
            if sink is not None:
                sink(self._buffer[self._start : self._start + count])
            self._start += count
            length -= count

    def _read_chunks(self, sink: Sink | None) -> int:
        """Read a chunked body; returns the number of bytes without the framing."""
        total = 0
        while True:
            length = int(self._read_until(b"\r\n").split(b";")[0], 16)
            if length == 0:
                while self._read_until(b"\r\n"):
                    pass
                return total
            self._read_exactly(length, sink)
            self._read_until(b"\r\n")
            total += length
