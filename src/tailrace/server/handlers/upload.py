"""
The upload of a snapshot: a small body is kept in memory, a large one is written to a file.

A thread writes one chunk while the loop collects the next. When both are full, nothing is read
from the client: an upload of any size takes a few chunks of memory.
"""

import asyncio
import errno
import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from tailrace.engine.base import SNAPSHOT_CHUNK_BYTES, Spool
from tailrace.engine.engine import Engine
from tailrace.engine.errors import DiskFull
from tailrace.protocol.errors import Refusal
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import SnapshotInfo
from tailrace.server.errors import SnapshotNotStored, SnapshotTooLarge

__all__ = ["Upload"]

INLINE_BYTES_MAX: Final = 256 << 10
"""Up to this size a snapshot is stored in the log, and shares its fsync with appends."""
PACE: Final = 3.0
"""While others write, an upload pauses after each chunk, for this multiple of its time."""

log = structlog.get_logger("tailrace")


class Upload:
    """One body: `write` until it is complete, then `finish`; `cancel` at any time."""

    def __init__(self, engine: Engine, bytes_max: int, stream_id: int | None = None) -> None:
        # The stream that existed when the upload began.
        self.stream_id = stream_id
        self.drained: Callable[[], None] | None = None
        self._engine = engine
        self._bytes_max = bytes_max
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self.size = 0
        self._hash = hashlib.sha256()
        self._id = 0
        self._spool: Spool | None = None
        self._writer: asyncio.Task[None] | None = None
        self._refusal: Refusal | None = None
        self._cancelled = False

    @property
    def blocked(self) -> bool:
        return self._writer is not None and len(self._buffer) >= SNAPSHOT_CHUNK_BYTES

    def write(self, data: bytes) -> None:
        if self._refusal is not None:
            raise self._refusal
        self.size += len(data)
        if self.size > self._bytes_max:
            raise SnapshotTooLarge(self._bytes_max)
        self._buffer += data
        if self._writer is None and len(self._buffer) >= SNAPSHOT_CHUNK_BYTES:
            self._writer = self._loop.create_task(self._write_chunks())

    async def finish(self, offset: Offset, content_type: str) -> tuple[SnapshotInfo, bytes | None]:
        """
        The body is complete: make a large one durable, return a small one.

        Raises:
            Refusal: It cannot be stored.
        """
        content = None
        if self._writer is not None:
            await self._writer
        if self._spool is None and self.size <= INLINE_BYTES_MAX:
            content = bytes(self._buffer)
            self._hash.update(content)
            self._id = self._engine.take_id()
        else:
            await self._finish_file()
        inline = content is not None
        digest = self._hash.digest()
        return SnapshotInfo(offset, self._id, self.size, content_type, digest, inline), content

    async def _finish_file(self) -> None:
        try:
            if self._refusal is None and self._buffer:
                await self._write_chunk()
            if self._refusal is None and self._spool is not None:
                await self._in_thread(self._spool.finish)
        except Exception as error:
            self._refusal = _refusal_of(error)
        if self._refusal is not None:
            self.cancel()
            raise self._refusal

    def cancel(self) -> None:
        """Discard the body."""
        self._cancelled = True
        self._buffer.clear()
        if self._writer is None:
            self._discard()

    async def _write_chunks(self) -> None:
        """Write all complete chunks, then let the client send more."""
        try:
            while len(self._buffer) >= SNAPSHOT_CHUNK_BYTES:
                began, batches = self._loop.time(), self._engine.commit.batches
                await self._write_chunk()
                if self._engine.commit.batches != batches:
                    await asyncio.sleep(PACE * (self._loop.time() - began))
                if self.drained is not None and not self.blocked:
                    self.drained()
        except Exception as error:
            self._refusal = _refusal_of(error)
        self._writer = None
        if self._cancelled:
            self._discard()
        elif self.drained is not None:
            self.drained()

    async def _write_chunk(self) -> None:
        """Write the first chunk of the buffer."""
        chunk = bytes(memoryview(self._buffer)[:SNAPSHOT_CHUNK_BYTES])
        del self._buffer[: len(chunk)]
        # Half: data in the log is written twice, a snapshot file once.
        self._engine.take_room(len(chunk) // 2)
        if self._spool is None:
            self._id = self._engine.take_id()
            self._spool = self._engine.store.spool(self._id)
        spool = self._spool

        def store() -> None:
            self._hash.update(chunk)
            spool.write(chunk)

        await self._in_thread(store)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await self._loop.run_in_executor(self._engine.blob_threads, work)

    def _discard(self) -> None:
        spool, self._spool = self._spool, None
        if spool is None:
            return
        try:
            job = self._loop.run_in_executor(self._engine.blob_threads, spool.discard)
            # A file that cannot be removed now is removed at the next start.
            job.add_done_callback(lambda done: done.exception())
        except RuntimeError:
            # The server stops; its threads have ended.
            with suppress(OSError):
                spool.discard()


def _refusal_of(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull()
    log.error("a snapshot cannot be written", error=str(error))
    return SnapshotNotStored()
