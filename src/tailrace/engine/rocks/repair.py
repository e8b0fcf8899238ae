"""
What RocksDB cannot do itself: start upon a log with a certain kind of damage.

RocksDB 9.8 reads a record of a recyclable type in a log that is not recycled, as garbage at the end
of a log may look like, again and again for ever. We never recycle logs, and recovery drops all from
the first damage on anyway, so such a log is cut there before it is opened.
"""

from pathlib import Path
from typing import Final

__all__ = ["is_endless", "mend_logs"]

_BLOCK_BYTES: Final = 32 << 10
_HEADER_BYTES: Final = 7
_RECYCLABLE: Final = frozenset((5, 6, 7, 8, 11))


def mend_logs(directory: Path) -> int:
    """Cut logs at the first record that RocksDB would stumble over; how many bytes were cut."""
    cut = 0
    for log in directory.glob("*.log"):
        end = _first_recyclable(log)
        if end is not None:
            cut += log.stat().st_size - end
            with log.open("r+b") as file:
                file.truncate(end)
    return cut


def is_endless(directory: Path) -> bool:
    """Whether a MANIFEST is damaged such that RocksDB would read it for ever."""
    return any(_first_recyclable(path) is not None for path in directory.glob("MANIFEST-*"))


def _first_recyclable(log: Path) -> int | None:
    """Where the first such record starts; records lie in blocks and never cross their ends."""
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
