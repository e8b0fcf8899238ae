"""
The form of RocksDB's logs, its write-ahead log and its MANIFEST: records in blocks of 32 KiB.

    u32 checksum, u16 length, u8 kind, bytes        kind: 1 whole, 2 first, 3 middle, 4 last

A piece never crosses the end of a block; a rest shorter than a header is zeros. RocksDB does not
report damage here: it takes the first damaged piece for the end of the log.

A log is torn if it ends inside of a record and no checksum fails: a writer that is killed leaves it
so. The checksum of the last piece cannot be verified then, and its length is in no checksum. If the
checksum fits a shorter piece, then the length is damaged.

Kinds 5 to 8 and 11 belong to recycled logs, which we never use. From a piece of any other kind on,
the log is not checked: a newer RocksDB may have written it.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import google_crc32c

from tailrace.engine.rocks.findings import Damage, NotChecked

__all__ = ["LogDamage", "check_log"]

BLOCK_BYTES: Final = 32 << 10
_HEADER: Final = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_DAMAGED_KINDS: Final = frozenset((0, 5, 6, 7, 8, 11))
_CUT_OFF: Final = "a record is cut off"


class LogDamage(Damage):
    """A log cannot be read from `offset` on, where the first incomplete record begins."""

    torn: bool = False
    """The file ends inside of this record, and nothing else is wrong with it."""


def _masked(check: int) -> int:
    """A CRC-32C in the form in which RocksDB stores it."""
    rotated = ((check >> 15) | (check << 17)) & 0xFFFFFFFF
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


def check_log(path: Path, advance: Callable[[int], object]) -> None:
    """
    Verify all records of a log.

    Raises:
        LogDamage: The log cannot be read from some offset on.
        NotChecked: The same, because its form is unknown from there on.
    """
    begun: int | None = None
    try:
        for at, kind in _pieces(path, advance):
            if (kind in (_WHOLE, _FIRST)) is (begun is not None):
                raise LogDamage(at, "pieces of a record are missing")
            if kind in (_WHOLE, _LAST):
                begun = None
            elif kind == _FIRST:
                begun = at
        if begun is not None:
            raise LogDamage(begun, _CUT_OFF, torn=True)
    except LogDamage as damage:
        # RocksDB reads whole records: the damage begins with the record.
        if begun is not None:
            damage.offset = begun
        raise


def _pieces(path: Path, advance: Callable[[int], object]) -> Iterator[tuple[int, int]]:
    start = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield from _pieces_of_block(block, start)
            start += len(block)
            advance(len(block))


def _pieces_of_block(block: bytes, start: int) -> Iterator[tuple[int, int]]:
    at = 0
    is_last = len(block) < BLOCK_BYTES
    while at + _HEADER.size <= len(block):
        stored, length, kind = _HEADER.unpack_from(block, at)
        end = at + _HEADER.size + length
        if kind in _DAMAGED_KINDS:
            raise LogDamage(start + at, f"there is no record of kind {kind}")
        if kind > _LAST:
            raise NotChecked(start + at, f"a record of the unknown kind {kind}")
        if end > len(block):
            torn = is_last and end <= BLOCK_BYTES and not _fits_shorter(block, at)
            raise LogDamage(start + at, _CUT_OFF, torn=torn)
        # The checksum covers the kind and the bytes.
        if stored != _masked(google_crc32c.value(block[at + 6 : end])):
            raise LogDamage(start + at, "a checksum does not match")
        yield start + at, kind
        at = end
    if at < len(block) and is_last:
        raise LogDamage(start + at, _CUT_OFF, torn=True)
    if any(block[at:]):
        raise LogDamage(start + at, "there are bytes between two records")


def _fits_shorter(block: bytes, at: int) -> bool:
    """Whether a beginning of the piece matches its checksum."""
    (stored, _, _), begin = _HEADER.unpack_from(block, at), at + _HEADER.size
    check = google_crc32c.value(block[at + 6 : begin])
    for end in range(begin, len(block)):
        if stored == _masked(check):
            return True
        check = google_crc32c.extend(check, block[end : end + 1])
    return bool(stored == _masked(check))
