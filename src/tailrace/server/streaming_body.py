"""
Bodies of any size that are made while they are sent: snapshots, bootstraps, rows, backups.

A task writes a piece, and waits for the peer before it makes the next: only one piece, and what the
transport buffers, is in memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog

from tailrace.server.compress import new_packer
from tailrace.server.message import Frame, Response, Sink

__all__ = ["StreamingBody", "streaming_response"]

log = structlog.get_logger("tailrace")


class StreamingBody:
    """A body from a source of pieces; `release` is called once, when it ends."""

    endless = False

    def __init__(
        self, source: AsyncIterator[bytes | memoryview], release: Callable[[], None]
    ) -> None:
        self._source = source
        self._release = release
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()

    def start(self, sink: Sink) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(sink))
        # Not in the task itself: if it is cancelled before its first step, it never runs.
        self._task.add_done_callback(lambda _: self._release())

    def drained(self) -> None:
        self._room.set()

    def cancel(self) -> None:
        if self._task is None:
            # The head was never sent.
            self._release()
        else:
            self._task.cancel()

    async def _run(self, sink: Sink) -> None:
        try:
            async for piece in self._source:
                if piece:
                    sink.write_frame(Frame(piece))
                if sink.blocked:
                    self._room.clear()
                    await self._room.wait()
        except Exception:
            # Cut off, so that the client cannot take this for the end of the body.
            log.exception("a streaming response failed")
            sink.abort()
        else:
            sink.finish()


def streaming_response(
    headers: list[tuple[bytes, bytes]],
    source: AsyncIterator[bytes | memoryview],
    release: Callable[[], None],
    coding: str | None = None,
    length: int | None = None,
    count: Callable[[int], None] | None = None,
) -> Response:
    """
    A 200 with a streaming body.

    `length` is that of the body before compression, if known. `count` is called with the size of
    each compressed piece.
    """
    if coding is not None:
        headers.append((b"Content-Encoding", coding.encode()))
        source, length = _compressed(source, coding, count), None
    return Response(200, headers, live=StreamingBody(source, release), length=length)


async def _compressed(
    source: AsyncIterator[bytes | memoryview], coding: str, count: Callable[[int], None] | None
) -> AsyncIterator[bytes]:
    """Compress the pieces of a source."""
    pack, finish = new_packer(coding)
    loop = asyncio.get_running_loop()
    async for piece in source:
        if data := await loop.run_in_executor(None, pack, piece):
            if count is not None:
                count(len(data))
            yield data
    rest = finish()
    if count is not None:
        count(len(rest))
    yield rest
