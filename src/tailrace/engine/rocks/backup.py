"""
A copy of the database as it is between two commits: hard links to RocksDB's own checkpoint, and to
the files of large snapshots.

A checkpoint holds the GIL, and so blocks the server, while it flushes memtables. They are flushed
before, in a thread that releases the GIL; the checkpoint flushes only what was appended since,
within a few milliseconds.

The copy is in the data directory, because hard links cannot cross file systems. What a crash leaves
of it is removed when the database is opened.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocksdict import Checkpoint

from tailrace.engine.base import CopiedFile, StoreCopy
from tailrace.engine.rocks.snapshot_files import SNAPSHOTS, snapshot_files

if TYPE_CHECKING:
    from rocksdict import Rdict

__all__ = ["RocksCopy", "remove_copies"]

COPIES: Final = "backup"
"""The directory of a copy, in the data directory."""
_FLUSHES: Final = 2
"""The second one flushes what came during the first."""
_NO_LINKS: Final = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK))


class RocksCopy(StoreCopy):
    def __init__(
        self,
        directory: Path,
        families: "tuple[Rdict, ...]",
        storage_format: int,
        known: Callable[[int], bool],
    ) -> None:
        self.storage_format = storage_format
        self._directory = directory
        self._families = families
        # Whether a record refers to the snapshot of this id.
        self._known = known
        self._target = directory / COPIES

    def prepare(self) -> None:
        remove_copies(self._directory)
        self._target.mkdir()
        with _disk_errors():
            for _ in range(_FLUSHES):
                for family in self._families:
                    family.flush(True)

    def take(self) -> dict[str, int]:
        database = self._families[0]
        with _disk_errors():
            Checkpoint(database).create_checkpoint(str(self._target / "data"))
        return {"sequence": database.latest_sequence_number()}

    def gather(self) -> list[CopiedFile]:
        self._link_snapshots()
        root = self._target / "data"
        found = []
        for path in sorted(root.rglob("*")):
            if path.is_file():
                found.append(CopiedFile(str(path.relative_to(root)), path, path.stat().st_size))
        return found

    def _link_snapshots(self) -> None:
        source, target = self._directory / SNAPSHOTS, self._target / "data" / SNAPSHOTS
        for snapshot_id, path in snapshot_files(source):
            # A file that no record refers to is being written, and is not part of the copy.
            if self._known(snapshot_id):
                target.mkdir(exist_ok=True)
                # Garbage whose removal began before files were pinned.
                with suppress(FileNotFoundError):
                    _link(path, target / path.name)

    def discard(self) -> None:
        remove_copies(self._directory)


def remove_copies(directory: Path) -> None:
    """Remove a copy, if there is one. What cannot be removed only takes space."""
    with suppress(OSError):
        shutil.rmtree(directory / COPIES)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without hard links.
        shutil.copyfile(source, target)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise RocksDB's failures as OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # rocksdict raises plain Exception
        full = "No space left" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
