"""
Bodies that are made while they are sent: snapshots and bootstraps, of any size.

A task takes a piece, writes it, and waits for the peer before it takes the next: however large the
whole is, one piece and what the transport buffers is all that is in memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog

from tailrace.server.compress import Packer
from tailrace.server.message import Frame, Sink

__all__ = ["StreamedBody", "packed"]

log = structlog.get_logger("tailrace")


class StreamedBody:
    """The body of an answer, from a source of pieces; `release` is called when it ends, once."""

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
        # Not by the task itself: one that is cancelled before its first step never runs.
        self._task.add_done_callback(lambda _: self._release())

    def drained(self) -> None:
        self._room.set()

    def cancel(self) -> None:
        if self._task is None:
            # The head was never sent: nobody reads, nothing is held.
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
            # The head promised more: cut off, so that the client cannot take this for the end.
            log.exception("a streamed answer failed")
            sink.abort()
        else:
            sink.finish()


async def packed(source: AsyncIterator[bytes | memoryview], coding: str) -> AsyncIterator[bytes]:
    """The pieces of a source, compressed as they come."""
    packer = Packer(coding)
    loop = asyncio.get_running_loop()
    async for piece in source:
        if data := await loop.run_in_executor(None, packer.pack, piece):
            yield data
    yield packer.finish()
