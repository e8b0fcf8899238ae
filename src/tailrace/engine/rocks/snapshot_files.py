"""
Snapshots that are too large for the log: one file each, in a directory beside the database.

A gigabyte in the log would delay every append: RocksDB writes it twice, and each fsync waits for it
(docs/decisions/0004 has the figures). A separate file is written by a thread and synced in steps;
only its name, an internal id, goes through the log once it is complete.

A file is the snapshot's bytes as they were sent, and after them a CRC-32 (u32, little-endian) of
each chunk of 1 MiB, which every read verifies. A file that no record refers to is left from a crash
during an upload, and is removed when the database is opened.
"""

import os
import re
import struct
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tailrace.engine.base import SNAPSHOT_CHUNK_BYTES, Spool
from tailrace.engine.errors import StorageDamaged
from tailrace.protocol.state import SnapshotInfo

__all__ = ["SNAPSHOTS", "SnapshotFiles", "snapshot_files"]

SNAPSHOTS: Final = "snapshots"
"""The directory of these files, in the data directory."""
SYNC_BYTES: Final = 1 << 20
"""This much is synced at a time: the fsync of the log waits for it."""
# Ids have 64 bits: 20 digits, the first of which is 0.
_NAME: Final = re.compile(r"0[0-9]{19}", re.ASCII)
_CRC: Final = struct.Struct("<I")


def snapshot_files(directory: Path) -> Iterator[tuple[int, Path]]:
    """The files of snapshots in a directory, by their ids; other files are ignored."""
    with suppress(FileNotFoundError):
        for path in directory.iterdir():
            if _NAME.fullmatch(path.name):
                yield int(path.name), path


class SnapshotFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.size = 0
        """The bytes of all complete files."""
        # Files are added and removed by several threads.
        self._counting = threading.Lock()

    def count(self, size: int) -> None:
        with self._counting:
            self.size += size

    def remove_orphans(self, known: Callable[[int], bool]) -> None:
        """Remove files that nothing refers to: a crash left them."""
        for snapshot_id, path in snapshot_files(self._directory):
            # A file that cannot be removed only takes space.
            with suppress(OSError):
                if not known(snapshot_id):
                    path.unlink()
                else:
                    self.count(path.stat().st_size)

    def spool(self, snapshot_id: int) -> "SnapshotFileSpool":
        return SnapshotFileSpool(self, self._directory, self._path(snapshot_id))

    def read(self, snapshot: SnapshotInfo, index: int) -> bytes:
        """One chunk. Raises StorageDamaged if it differs from what was written."""
        start = index * SNAPSHOT_CHUNK_BYTES
        size = min(SNAPSHOT_CHUNK_BYTES, snapshot.size - start)
        try:
            file = os.open(self._path(snapshot.id), os.O_RDONLY | os.O_CLOEXEC)
            try:
                chunk = os.pread(file, size, start)
                check = os.pread(file, _CRC.size, snapshot.size + index * _CRC.size)
            finally:
                os.close(file)
        except OSError as error:
            raise StorageDamaged(snapshot.offset.token()) from error
        if len(chunk) != size or check != _CRC.pack(zlib.crc32(chunk)):
            raise StorageDamaged(snapshot.offset.token())
        return chunk

    def unlink(self, snapshot_id: int) -> None:
        path = self._path(snapshot_id)
        with suppress(FileNotFoundError):
            size = path.stat().st_size
            path.unlink()
            self.count(-size)

    def _path(self, snapshot_id: int) -> Path:
        return self._directory / f"{snapshot_id:020d}"


class SnapshotFileSpool(Spool):
    def __init__(self, blobs: SnapshotFiles, directory: Path, path: Path) -> None:
        self._snapshot_files = blobs
        self._directory = directory
        self._path = path
        self._file: int | None = None
        self._unsynced = 0
        # The bytes of this file in `SnapshotFiles.size`.
        self._counted = 0
        self._checks = array("I")

    def write(self, chunk: bytes) -> None:
        if self._file is None:
            self._directory.mkdir(exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o644)
        self._checks.append(zlib.crc32(chunk))
        self._write(chunk)
        self._unsynced += len(chunk)
        if self._unsynced >= SYNC_BYTES:
            self._unsynced = 0
            os.fdatasync(self._file)

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def finish(self) -> None:
        assert self._file is not None
        self._write(self._checks.tobytes())
        os.fsync(self._file)
        self._counted = os.fstat(self._file).st_size
        self._snapshot_files.count(self._counted)
        os.close(self._file)
        self._file = None
        # The name must be durable too, and that of the directory.
        for directory in (self._directory, self._directory.parent):
            entry = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(entry)
            finally:
                os.close(entry)

    def discard(self) -> None:
        file, self._file = self._file, None
        try:
            if file is not None:
                os.close(file)
        finally:
            self._path.unlink(missing_ok=True)
            self._snapshot_files.count(-self._counted)
            self._counted = 0
