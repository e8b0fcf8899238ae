"""
The form of RocksDB's logs, its write-ahead log and its MANIFEST: records in blocks of 32 KiB.

    u32 checksum, u16 length, u8 kind, bytes        kind: 1 whole, 2 first, 3 middle, 4 last

A piece never crosses the end of a block; less than a header's room is zeros. Nothing here is
believed: RocksDB itself takes what does not fit at the end of a log for what a crash left.

A log is torn if it ends inside of a record and no checksum fails: that is how a writer leaves it
that was killed. The checksum of the last piece cannot be looked at then, and the length is not in
any: so it is tried whether one that is shorter fits, and then it is the length that was damaged.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

__all__ = ["LogDamage", "crc_fits", "read_log"]

BLOCK_BYTES: Final = 32 << 10
_HEADER: Final = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_CUT_OFF: Final = "a record is cut off"


class LogDamage(Exception):
    """A log cannot be read on."""

    def __init__(self, at: int, size: int, reason: str, *, torn: bool = False) -> None:
        super().__init__(at, size, reason)
        self.at = at
        """Where the first record begins that is not whole."""
        self.size = size
        """Of the whole file."""
        self.reason = reason
        self.torn = torn
        """The file ends inside of this record, and nothing else is wrong with it."""


class _Piece(NamedTuple):
    at: int
    kind: int
    data: bytes


def crc_fits(stored: int, *pieces: bytes) -> bool:
    """Whether bytes have this CRC-32C, as RocksDB stores it: rotated, and more."""
    check = 0
    for piece in pieces:
        check = google_crc32c.extend(check, piece)
    return stored == _masked(check)


def _masked(check: int) -> int:
    rotated = ((check >> 15) | (check << 17)) & 0xFFFFFFFF
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


def read_log(path: Path, advance: Callable[[int], object]) -> Iterator[bytes]:
    """
    The records of a log, each whole.

    Raises:
        LogDamage: From some point on it cannot be read.
    """
    size = path.stat().st_size
    begun = 0
    parts: list[bytes] | None = None
    try:
        for piece in _pieces(path, advance):
            if (piece.kind in (_WHOLE, _FIRST)) is (parts is not None):
                raise ValueError("pieces of a record are missing")
            if parts is None:
                begun, parts = piece.at, []
            parts.append(piece.data)
            if piece.kind in (_WHOLE, _LAST):
                yield b"".join(parts)
                parts = None
                begun = piece.at + _HEADER.size + len(piece.data)
        if parts is not None:
            raise _Broken(size, _CUT_OFF, torn=True)
    except _Broken as error:
        at = begun if parts is not None else error.at
        raise LogDamage(at, size, str(error), torn=error.torn) from error
    except ValueError as error:
        raise LogDamage(begun, size, str(error)) from error


class _Broken(ValueError):
    """A piece of a log is not what was written."""

    def __init__(self, at: int, reason: str, *, torn: bool = False) -> None:
        super().__init__(reason)
        self.at = at
        self.torn = torn


def _pieces(path: Path, advance: Callable[[int], object]) -> Iterator[_Piece]:
    start = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield from _pieces_of_block(block, start)
            start += len(block)
            advance(len(block))


def _pieces_of_block(block: bytes, start: int) -> Iterator[_Piece]:
    at = 0
    is_last = len(block) < BLOCK_BYTES
    while at + _HEADER.size <= len(block):
        stored, length, kind = _HEADER.unpack_from(block, at)
        end = at + _HEADER.size + length
        if not _WHOLE <= kind <= _LAST:
            raise _Broken(start + at, f"there is no record of kind {kind}")
        if end > len(block):
            torn = is_last and end <= BLOCK_BYTES and not _fits_shorter(block, at)
            raise _Broken(start + at, _CUT_OFF, torn=torn)
        data = block[at + _HEADER.size : end]
        if not crc_fits(stored, block[at + 6 : at + 7], data):
            raise _Broken(start + at, "a checksum does not fit")
        yield _Piece(start + at, kind, data)
        at = end
    if at < len(block) and is_last:
        raise _Broken(start + at, _CUT_OFF, torn=True)
    if any(block[at:]):
        raise _Broken(start + at, "there is something between two records")


def _fits_shorter(block: bytes, at: int) -> bool:
    """Whether what there is of a piece has, up to some byte, the checksum of a whole one."""
    (stored, _, _), begin = _HEADER.unpack_from(block, at), at + _HEADER.size
    check = google_crc32c.extend(0, block[at + 6 : begin])
    if stored == _masked(check):
        return True
    for place in range(begin, len(block)):
        check = google_crc32c.extend(check, block[place : place + 1])
        if stored == _masked(check):
            return True
    return False
