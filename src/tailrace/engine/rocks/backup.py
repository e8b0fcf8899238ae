"""
A copy of the database as it is between two commits, of hard links: RocksDB's own checkpoint, and
the files of large snapshots beside it.

A checkpoint holds the GIL, and so the server, while it writes memtables to tables. They are written
before, by a thread and without the GIL; what is left to the checkpoint is what was appended since,
a few milliseconds' worth.

The copy lies in the data directory, for hard links do not leave a file system. What a crash leaves
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

from tailrace.engine.rocks.snapshot_files import SNAPSHOTS, snapshot_files
from tailrace.engine.store_copy import CopiedFile, StoreCopy

if TYPE_CHECKING:
    from rocksdict import Rdict

__all__ = ["RocksCopy", "remove_copies"]

COPIES: Final = "backup"
"""The directory in the data directory that a copy lies in."""
_FLUSHES: Final = 2
"""The second one takes what came during the first."""
_NO_LINKS: Final = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK))


class RocksCopy(StoreCopy):
    """A copy of an open database."""

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
        self._place = directory / COPIES

    def prepare(self) -> None:
        remove_copies(self._directory)
        self._place.mkdir()
        with _disk_errors():
            for _ in range(_FLUSHES):
                for family in self._families:
                    family.flush(True)

    def take(self) -> dict[str, int]:
        database = self._families[0]
        with _disk_errors():
            Checkpoint(database).create_checkpoint(str(self._place / "data"))
        return {"sequence": database.latest_sequence_number()}

    def gather(self) -> list[CopiedFile]:
        self._link_snapshots()
        root = self._place / "data"
        found = []
        for path in sorted(root.rglob("*")):
            if path.is_file():
                found.append(CopiedFile(str(path.relative_to(root)), path, path.stat().st_size))
        return found

    def _link_snapshots(self) -> None:
        source, target = self._directory / SNAPSHOTS, self._place / "data" / SNAPSHOTS
        for snapshot_id, path in snapshot_files(source):
            # One that no record refers to is being written; none in the copy refers to it either.
            if self._known(snapshot_id):
                target.mkdir(exist_ok=True)
                # Garbage that was on its way out before we began to hold files.
                with suppress(FileNotFoundError):
                    _link(path, target / path.name)

    def discard(self) -> None:
        remove_copies(self._directory)


def remove_copies(directory: Path) -> None:
    """Remove what there is of a copy; what cannot be removed takes room, and harms nothing."""
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
    """RocksDB's failures as those of the disk that they are."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # rocksdict raises plain Exception
        full = "No space left" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
