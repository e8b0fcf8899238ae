"""
Repairs a kind of damage that keeps RocksDB from opening a database.

RocksDB 9.8 loops forever on a record of a recyclable type in a log that is not recycled; random
bytes at the end of a log may look so. We never recycle logs, and recovery drops everything from the
first damage on anyway, so such a log is truncated there before it is opened.
"""

from pathlib import Path
from typing import Final

__all__ = ["is_manifest_endless", "repair_logs"]

_BLOCK_BYTES: Final = 32 << 10
_HEADER_BYTES: Final = 7
_RECYCLABLE: Final = frozenset((5, 6, 7, 8, 11))


def repair_logs(directory: Path) -> int:
    """Truncate logs at the first recyclable record; returns the number of bytes removed."""
    cut = 0
    for log in directory.glob("*.log"):
        end = _first_recyclable(log)
        if end is not None:
            cut += log.stat().st_size - end
            with log.open("r+b") as file:
                file.truncate(end)
    return cut


def is_manifest_endless(directory: Path) -> bool:
    """Whether RocksDB would loop forever on a MANIFEST."""
    return any(_first_recyclable(path) is not None for path in directory.glob("MANIFEST-*"))


def _first_recyclable(log: Path) -> int | None:
    """The offset of the first recyclable record."""
    start = 0
    with log.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            at = 0
            while at + _HEADER_BYTES <= len(block):
                kind = block[at + 6]
                if kind in _RECYCLABLE:
                    return start + at
                length = block[at + 4] | block[at + 5] << 8
                if kind == 0 and length == 0:
                    break
                at += _HEADER_BYTES + length
            start += len(block)
    return None
