"""
`POST /-/backup`: a consistent copy of the whole store as one tar, while the server runs.

The copy is taken between two group commits: it has everything that was acknowledged before, and
nothing of what came after. It is made of hard links in the data directory, and removed when it has
been sent, when its client is gone, or, after a crash, when the server starts again.

A copy keeps deleted files on disk. If the disk becomes full, the backup is aborted, even if its
client does not read.
"""

import asyncio
import errno
import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from tailrace import __version__
from tailrace.engine import backup_format
from tailrace.engine.base import CopiedFile, StoreCopy
from tailrace.engine.engine import Engine
from tailrace.engine.errors import DiskFull
from tailrace.server import headers as h
from tailrace.server.errors import BackupFailed, BackupRunning, BackupUnsupported
from tailrace.server.message import Request, Response
from tailrace.server.streaming_body import streaming_response

__all__ = ["BackupHandler"]

T = TypeVar("T")

PIECE_BYTES: Final = 1 << 20
WATCH_S: Final = 0.5
"""How often to check whether the disk is full: as often as that is measured."""

log = structlog.get_logger("tailrace")


class BackupHandler:
    """POST of `/-/backup`, one at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._running = False

    async def create(self, _request: Request) -> Response:
        """
        Raises:
            BackupUnsupported: The store is in memory.
            BackupRunning: Another backup is running.
            DiskFull, BackupFailed: The copy cannot be taken.
        """
        copy = self._engine.store.copy()
        if copy is None:
            raise BackupUnsupported
        if self._running:
            raise BackupRunning
        self._engine.measure_room()
        if self._engine.full:
            raise DiskFull
        self._running = True
        job = _Job(self._engine, copy, self._ended)
        try:
            await job.take()
        except BaseException as error:
            job.end()
            if not isinstance(error, OSError):
                raise
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull from error
            log.error("backup failed", error=str(error))
            raise BackupFailed from error
        headers = [
            (h.CONTENT_TYPE, b"application/x-tar"),
            (b"Content-Disposition", b'attachment; filename="tailrace-backup.tar"'),
            h.NO_STORE,
        ]
        return streaming_response(headers, job.pieces(), job.end, length=job.size)

    def _ended(self) -> None:
        self._running = False


class _Job:
    def __init__(self, engine: Engine, copy: StoreCopy, ended: Callable[[], None]) -> None:
        self.size = 0
        self._engine = engine
        self._copy = copy
        self._on_end = ended
        self._loop = asyncio.get_running_loop()
        self._thread: Future[Any] | None = None
        self._files: list[CopiedFile] = []
        self._manifest = b""
        self._time_ms = self._pause_ms = 0
        self._aborted = False
        self._timer: asyncio.TimerHandle | None = None

    async def take(self) -> None:
        """Take the copy; appends wait only while the links are made, between two commits."""
        engine = self._engine
        await self._in_thread(self._copy.prepare)
        with engine.pins.hold_files():
            counters = await engine.commit.run_when_idle(self._take)
            self._files = await self._in_thread(self._copy.gather)
        self._manifest = backup_format.make_manifest(
            self._files,
            tailrace=__version__,
            storage_format=self._copy.storage_format,
            time_ms=self._time_ms,
            counters=counters,
        )
        self.size = backup_format.archive_size(self._manifest, self._files)
        self._timer = self._loop.call_later(WATCH_S, self._watch)
        log.info("backup taken", bytes=self.size, files=len(self._files), pause_ms=self._pause_ms)

    def _take(self) -> dict[str, int]:
        self._time_ms = self._engine.clock()
        try:
            return self._copy.take()
        finally:
            self._pause_ms = self._engine.clock() - self._time_ms

    def _watch(self) -> None:
        """Abort if the disk is full, to free the space that the copy holds."""
        if self._engine.full:
            log.warning("the disk is full: backup aborted")
            self._aborted = True
            self._engine.blob_threads.submit(self._copy.discard)
        else:
            self._timer = self._loop.call_later(WATCH_S, self._watch)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The tar."""
        sums = [(backup_format.MANIFEST, hashlib.sha256(self._manifest).hexdigest())]
        yield self._member(backup_format.MANIFEST, self._manifest)
        for file in self._files:
            name = backup_format.DATA + file.name
            yield backup_format.head(name, file.size, self._time_ms)
            check = hashlib.sha256()
            for start in range(0, file.size, PIECE_BYTES):
                if self._aborted:
                    raise DiskFull
                yield await self._in_thread(partial(_read_at, file, start, check))
            yield backup_format.padding(file.size)
            sums.append((name, check.hexdigest()))
        yield self._member(backup_format.SUMS, backup_format.sums_text(sums)) + backup_format.END
        log.info("backup sent", bytes=self.size)

    def _member(self, name: str, content: bytes) -> bytes:
        size = len(content)
        return backup_format.head(name, size, self._time_ms) + content + backup_format.padding(size)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        job = self._engine.blob_threads.submit(work)
        self._thread = job
        return await asyncio.wrap_future(job)

    def end(self) -> None:
        """Remove the copy, once no thread uses it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is None or self._thread.done():
            self._discard()
        else:
            self._thread.add_done_callback(lambda _: self._on_loop(self._discard))

    def _discard(self) -> None:
        try:
            job = self._engine.blob_threads.submit(self._copy.discard)
        except RuntimeError:
            # The server stops; its threads have ended.
            self._copy.discard()
        else:
            job.add_done_callback(lambda _: self._on_loop(self._on_end))

    def _on_loop(self, work: Callable[[], None]) -> None:
        # If the loop is closed, the next start removes the copy.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work)


def _read_at(file: CopiedFile, start: int, check: "hashlib._Hash") -> bytes:
    """Read a piece of a file, and add it to the file's checksum."""
    size = min(PIECE_BYTES, file.size - start)
    # The file is not kept open: the space of an aborted backup must be freed at once.
    with Path(file.path).open("rb") as opened:
        opened.seek(start)
        piece = opened.read(size)
    if len(piece) != size:
        raise OSError(errno.EIO, f"{file.name} has become shorter")
    check.update(piece)
    return piece
