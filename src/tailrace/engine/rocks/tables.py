"""
What RocksDB does not look at when it is asked for all that it has: filters, which it does without
where they are damaged, and in blob files what no key refers to any more.

A table ends with a footer, before that the block that says where filter, index and properties are.
Each block is followed by a byte and a checksum, of which this file knows the form that tables have
since format 6. Data blocks are checked by reading them.

    blob file   header: magic u32, version u32, family u32, flags, compression, expiration 2 × u64
                records: key and value size u64, expiration u64, crc u32 of these, crc u32, bytes
                footer: magic u32, count u64, expiration 2 × u64, crc u32
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import xxhash

from tailrace.engine.rocks.logs import crc_fits

__all__ = ["FileDamage", "check_blob_file", "check_table"]

_FOOTER: Final = struct.Struct("<B4sIII24sIQ")
_EXTENDED_MAGIC: Final = b"\x3e\x00\x7a\x00"
_TABLE_MAGIC: Final = 0x88E241B785F4CFF7
_FORMAT_MIN: Final = 6
_XXH3: Final = 4
_TRAILER: Final = struct.Struct("<BI")
_LAST_BYTE_PRIME: Final = 0x6B9083D9
_U32: Final = 0xFFFFFFFF

_BLOB_HEADER: Final = struct.Struct("<IIIBBQQ")
_BLOB_RECORD: Final = struct.Struct("<QQQII")
_BLOB_FOOTER: Final = struct.Struct("<IQQQI")
_BLOB_MAGIC: Final = 2395959
_BLOB_VERSION: Final = 1
_COMPRESSIONS: Final = (0, 4)
"""None, and LZ4."""


class FileDamage(Exception):
    """A file is not what was written; where, and why."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(at, reason)
        self.at = at
        self.reason = reason


def check_table(path: Path, advance: Callable[[int], object]) -> None:
    """
    Check the blocks of a table that are not data.

    Raises:
        FileDamage: One is not what was written.
    """
    size = path.stat().st_size
    at = size - _FOOTER.size
    with path.open("rb") as file:
        file.seek(max(at, 0))
        footer = file.read()
        if len(footer) != _FOOTER.size:
            raise FileDamage(0, "it is too short for a table")
        kind, extended, _, context, meta_size, _, version, magic = _FOOTER.unpack(footer)
        if magic != _TABLE_MAGIC or version < _FORMAT_MIN or extended != _EXTENDED_MAGIC:
            raise FileDamage(at, "it has no footer that is known")
        if kind != _XXH3:
            raise FileDamage(at, f"its blocks have checksums of an unknown kind, {kind}")
        meta_at = at - _TRAILER.size - meta_size
        meta = _read_block(file, meta_at, meta_size, context)
        for begin, length in _handles(meta, meta_at):
            if begin + length > size:
                raise FileDamage(meta_at, "a block lies outside of it")
            _read_block(file, begin, length, context)
            advance(length)


def _read_block(file: BinaryIO, at: int, size: int, context: int) -> bytes:
    """A block, as it is stored, checked."""
    if at < 0:
        raise FileDamage(0, "a block lies outside of it")
    file.seek(at)
    block = file.read(size)
    trailer = file.read(_TRAILER.size)
    if len(block) != size or len(trailer) != _TRAILER.size:
        raise FileDamage(at, "a block is cut off")
    last, stored = _TRAILER.unpack(trailer)
    check = (xxhash.xxh3_64_intdigest(block) & _U32) ^ (last * _LAST_BYTE_PRIME & _U32)
    if context:
        # So that a block of another place, or of another file, is not taken for this one.
        check += context ^ ((at & _U32) + (at >> 32) & _U32)
    if stored != check & _U32:
        raise FileDamage(at, "the checksum of a block does not fit")
    return block


def _handles(block: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Where the blocks are that a metaindex names."""
    try:
        (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
        end = len(block) - 4 - 4 * (restarts & 0x7FFFFFFF)
        place = 0
        while place < end:
            _, place = _varint(block, place)
            key, place = _varint(block, place)
            value, place = _varint(block, place)
            begin, after = _varint(block, place + key)
            length, _ = _varint(block, after)
            place += key + value
            yield begin, length
    except (IndexError, struct.error) as error:
        raise FileDamage(at, "the list of its blocks cannot be read") from error


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def check_blob_file(path: Path, advance: Callable[[int], object], family: int) -> None:
    """
    Check all of a blob file of a column family, what is garbage too.

    Raises:
        FileDamage: It is not what was written.
    """
    end = path.stat().st_size - _BLOB_FOOTER.size
    with path.open("rb") as file:
        head = file.read(_BLOB_HEADER.size)
        # It has no checksum of its own, and nothing in it that is not known.
        if head not in [
            _BLOB_HEADER.pack(_BLOB_MAGIC, _BLOB_VERSION, family, 0, compression, 0, 0)
            for compression in _COMPRESSIONS
        ]:
            raise FileDamage(0, "its header is not what was written")
        at, count = _BLOB_HEADER.size, 0
        while at < end:
            size = _check_blob(file, at, end)
            at += size
            count += 1
            advance(size)
        footer = file.read()
    if len(footer) != _BLOB_FOOTER.size:
        raise FileDamage(at, "its footer is cut off")
    magic, stored_count, _, _, check = _BLOB_FOOTER.unpack(footer)
    if magic != _BLOB_MAGIC or stored_count != count or not crc_fits(check, footer[:-4]):
        raise FileDamage(at, "its footer is not what was written")


def _check_blob(file: BinaryIO, at: int, end: int) -> int:
    head = file.read(_BLOB_RECORD.size)
    if len(head) == _BLOB_RECORD.size:
        key, value, _, head_check, check = _BLOB_RECORD.unpack(head)
        size = int(_BLOB_RECORD.size + key + value)
        # Before it is read: a length that was damaged may be of any size.
        if crc_fits(head_check, head[:24]) and at + size <= end:
            if not crc_fits(check, file.read(key + value)):
                raise FileDamage(at, "the checksum of a value does not fit")
            return size
    raise FileDamage(at, "the header of a value is not what was written")
