"""
The form of RocksDB's logs, its write-ahead log and its MANIFEST: records in blocks of 32 KiB.

    u32 checksum, u16 length, u8 kind, bytes        kind: 1 whole, 2 first, 3 middle, 4 last

A piece never crosses the end of a block; less than a header's room is zeros. Nothing here is
believed: RocksDB itself takes what does not fit at the end of a log for what a crash left.
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


class LogDamage(Exception):
    """A log cannot be read on."""

    def __init__(self, at: int, size: int, reason: str) -> None:
        super().__init__(at, size, reason)
        self.at = at
        """Where the first record begins that is not whole."""
        self.size = size
        """Of the whole file."""
        self.reason = reason


class _Piece(NamedTuple):
    at: int
    kind: int
    data: bytes


def crc_fits(stored: int, *pieces: bytes) -> bool:
    """Whether bytes have this CRC-32C, as RocksDB stores it: rotated, and more."""
    check = 0
    for piece in pieces:
        check = google_crc32c.extend(check, piece)
    rotated = ((check >> 15) | (check << 17)) & 0xFFFFFFFF
    return stored == (rotated + 0xA282EAD8) & 0xFFFFFFFF


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
            raise ValueError("the last record is not whole")
    except _Broken as error:
        raise LogDamage(begun if parts is not None else error.at, size, str(error)) from error
    except ValueError as error:
        raise LogDamage(begun, size, str(error)) from error


class _Broken(ValueError):
    """A piece of a log is not what was written."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


def _pieces(path: Path, advance: Callable[[int], object]) -> Iterator[_Piece]:
    start = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield from _pieces_of_block(block, start)
            start += len(block)
            advance(len(block))


def _pieces_of_block(block: bytes, start: int) -> Iterator[_Piece]:
    at = 0
    while at + _HEADER.size <= len(block):
        stored, length, kind = _HEADER.unpack_from(block, at)
        end = at + _HEADER.size + length
        if not _WHOLE <= kind <= _LAST:
            raise _Broken(start + at, f"there is no record of kind {kind}")
        if end > len(block):
            raise _Broken(start + at, "a record is cut off")
        data = block[at + _HEADER.size : end]
        if not crc_fits(stored, block[at + 6 : at + 7], data):
            raise _Broken(start + at, "a checksum does not fit")
        yield _Piece(start + at, kind, data)
        at = end
    if at < len(block) and (any(block[at:]) or len(block) < BLOCK_BYTES):
        raise _Broken(start + at, "there is something between two records")
