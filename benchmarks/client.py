"""Many requests over many connections, from one event loop.

Each connection has one request in flight and takes the next one from a shared
iterator as soon as its response is complete. Responses are parsed only as far as
needed to find their end.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import cast

import uvloop

from benchmarks.model import BenchmarkError

STALL_SECONDS = 60.0

_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)

OnResponse = Callable[[bytes, int, bytes, int], None]
"""Called with the request, the status, the response's head and the body's length."""


def run_requests(
    host: str, port: int, connections: int, requests: Iterable[bytes], on_response: OnResponse
) -> float:
    """Send every request and wait for every response; returns the seconds it took.

    The clock starts when all connections are open.
    """
    return uvloop.run(_run(host, port, connections, requests, on_response))


class Statuses:
    """Counts responses by status; usable as ``on_response``."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def __call__(self, request: bytes, status: int, head: bytes, body_bytes: int) -> None:
        """Count one response."""
        self.counts[status] = self.counts.get(status, 0) + 1


async def _run(
    host: str, port: int, connections: int, requests: Iterable[bytes], on_response: OnResponse
) -> float:
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[None] = loop.create_future()
    run = _SharedRun(iter(requests), on_response, connections, finished)
    callers: list[_Caller] = []
    try:
        for _ in range(connections):
            _, caller = await loop.create_connection(lambda: _Caller(run), host, port)
            callers.append(caller)
        before = time.perf_counter()
        for caller in callers:
            caller.send_next()
        await run.wait()
        return time.perf_counter() - before
    finally:
        for caller in callers:
            caller.close()


class _SharedRun:
    """The state that the connections of one run share."""

    def __init__(
        self,
        requests: Iterator[bytes],
        on_response: OnResponse,
        busy: int,
        finished: asyncio.Future[None],
    ) -> None:
        self.requests = requests
        self._on_response = on_response
        self._busy = busy
        self._finished = finished
        self._responses = 0

    async def wait(self) -> None:
        """Wait for the end of the run; fail if no response comes for a long time."""
        seen = -1
        while not self._finished.done():
            if seen == self._responses:
                raise BenchmarkError(f"no response for {STALL_SECONDS:.0f} seconds")
            seen = self._responses
            await asyncio.wait({self._finished}, timeout=STALL_SECONDS)
        self._finished.result()

    def response(self, request: bytes, status: int, head: bytes, body_bytes: int) -> None:
        """Handle one complete response."""
        self._responses += 1
        self._on_response(request, status, head, body_bytes)

    def idle(self) -> None:
        """One connection found no more requests."""
        self._busy -= 1
        if self._busy == 0 and not self._finished.done():
            self._finished.set_result(None)

    def fail(self, error: Exception) -> None:
        """End the run with an error."""
        if not self._finished.done():
            self._finished.set_exception(error)


class _Caller(asyncio.Protocol):
    """One connection with at most one request in flight."""

    def __init__(self, run: _SharedRun) -> None:
        self._run = run
        self._transport: asyncio.Transport
        self._waiting = b""
        self._request = b""
        self._under_way = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def connection_lost(self, error: Exception | None) -> None:
        if self._under_way:
            self._run.fail(BenchmarkError("the server closed a connection within a response"))

    def close(self) -> None:
        """Drop the connection, also during a request."""
        self._under_way = False
        self._transport.abort()

    def send_next(self) -> None:
        """Take the next request from the run and send it."""
        request = next(self._run.requests, None)
        if request is None:
            self._under_way = False
            self._run.idle()
            return
        self._under_way = True
        self._request = request
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        try:
            self._take(self._waiting + data if self._waiting else data)
        except Exception as error:  # the run as a whole has to end
            self._run.fail(error)

    def _take(self, data: bytes) -> None:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._waiting = data
            return
        head = data[:end]
        status = int(head[9:12])
        found = self._body_length(status, head, data, end + 4)
        if found is None:
            self._waiting = data
            return
        self._waiting = b""
        self._run.response(self._request, status, head, found)
        self.send_next()

    def _body_length(self, status: int, head: bytes, data: bytes, start: int) -> int | None:
        """The length of the response's body, or None while it is incomplete."""
        if status == 204 or self._request.startswith(b"HEAD "):
            return 0
        stated = _CONTENT_LENGTH.search(head)
        if stated is not None:
            length = int(stated[1])
            return length if len(data) - start >= length else None
        return _chunked_length(data, start) if _CHUNKED.search(head) else 0


def _chunked_length(data: bytes, start: int) -> int | None:
    """The length of a chunked body without its framing, or None if incomplete."""
    total = 0
    while True:
        line_end = data.find(b"\r\n", start)
        if line_end < 0:
            return None
        length = int(data[start:line_end].split(b";")[0], 16)
        start = line_end + 2 + length + 2
        if len(data) < start:
            return None
        if length == 0:
            return total
        total += length
