"""
What RocksDB does not look at when it is asked for all that it has: filters, which it does without
where they are damaged; data that a deleted range covers, which it jumps over until it compacts; and
in blob files what no key refers to any more.

A table ends with a footer, before that the block that says where filter, index and properties are;
the index says where the data is. Each block is followed by a byte, how it is compressed, and a
checksum, of which this file knows the form that tables have since format 6.

    index       entries: zero, size of a key, the key, where a block begins, its size; all varints
    blob file   header: magic u32, version u32, family u32, flags, compression, expiration 2 × u64
                records: key and value size u64, expiration u64, crc u32 of these, crc u32, bytes
                footer: magic u32, count u64, expiration 2 × u64, crc u32
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import xxhash

from tailrace.engine.rocks.logs import crc_fits
from tailrace.engine.rocks.lz4 import decompress

__all__ = ["FileDamage", "check_blob_file", "check_table"]

_FOOTER: Final = struct.Struct("<B4sIII24sIQ")
_EXTENDED_MAGIC: Final = b"\x3e\x00\x7a\x00"
_TABLE_MAGIC: Final = 0x88E241B785F4CFF7
_FORMAT_MIN: Final = 6
_XXH3: Final = 4
_TRAILER: Final = struct.Struct("<BI")
_LAST_BYTE_PRIME: Final = 0x6B9083D9
_U32: Final = 0xFFFFFFFF
_INDEX: Final = b"rocksdb.index"
_NONE, _LZ4 = 0, 4

_BLOB_HEADER: Final = struct.Struct("<IIIBBQQ")
_BLOB_RECORD: Final = struct.Struct("<QQQII")
_BLOB_FOOTER: Final = struct.Struct("<IQQQI")
_BLOB_MAGIC: Final = 2395959
_BLOB_VERSION: Final = 1
_COMPRESSIONS: Final = (_NONE, _LZ4)


class FileDamage(Exception):
    """A file is not what was written; where, and why."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(at, reason)
        self.at = at
        self.reason = reason


def check_table(path: Path, advance: Callable[[int], object]) -> None:
    """
    Check all blocks of a table.

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
        blocks = _Blocks(file, at, context)
        meta_at = at - _TRAILER.size - meta_size
        meta, _ = blocks.read(meta_at, meta_size)
        for name, begin, length in _named(meta, meta_at):
            block, compression = blocks.read(begin, length)
            advance(length)
            if name == _INDEX:
                _check_data(blocks, _index(block, compression, begin), advance)


def _check_data(
    blocks: "_Blocks", index: Iterable[tuple[int, int]], advance: Callable[[int], object]
) -> None:
    for begin, length in index:
        blocks.read(begin, length)
        advance(length)


class _Blocks:
    """The blocks of a table, each checked as it is read."""

    def __init__(self, file: BinaryIO, end: int, context: int) -> None:
        self._file = file
        self._end = end
        self._context = context

    def read(self, at: int, size: int) -> tuple[bytes, int]:
        """A block, as it is stored, and how it is compressed."""
        # Before it is read: a length that was damaged may be of any size.
        if at < 0 or at + size + _TRAILER.size > self._end:
            raise FileDamage(max(at, 0), "a block lies outside of it")
        self._file.seek(at)
        block = self._file.read(size)
        trailer = self._file.read(_TRAILER.size)
        if len(block) != size or len(trailer) != _TRAILER.size:
            raise FileDamage(at, "a block is cut off")
        compression, stored = _TRAILER.unpack(trailer)
        check = (xxhash.xxh3_64_intdigest(block) & _U32) ^ (compression * _LAST_BYTE_PRIME & _U32)
        if self._context:
            # So that a block of another place, or of another file, is not taken for this one.
            check += self._context ^ ((at & _U32) + (at >> 32) & _U32)
        if stored != check & _U32:
            raise FileDamage(at, "the checksum of a block does not fit")
        return block, compression


def _named(block: bytes, at: int) -> Iterator[tuple[bytes, int, int]]:
    """The blocks that a metaindex names, and where they are."""
    name = b""
    try:
        place, end = 0, _entries_end(block)
        while place < end:
            shared, place = _varint(block, place)
            key, place = _varint(block, place)
            value, place = _varint(block, place)
            name = name[:shared] + block[place : place + key]
            begin, after = _varint(block, place + key)
            length, _ = _varint(block, after)
            place += key + value
            yield name, begin, length
    except (IndexError, struct.error) as error:
        raise FileDamage(at, "the list of its blocks cannot be read") from error


def _index(block: bytes, compression: int, at: int) -> Iterator[tuple[int, int]]:
    """Where the blocks of data are."""
    try:
        if compression not in _COMPRESSIONS:
            raise ValueError(f"compression {compression}")
        if compression == _LZ4:
            size, begin = _varint(block, 0)
            block = decompress(block[begin:], size)
        place, end = 0, _entries_end(block)
        while place < end:
            shared, place = _varint(block, place)
            if shared:
                raise ValueError("keys that are not whole")
            key, place = _varint(block, place)
            begin, place = _varint(block, place + key)
            length, place = _varint(block, place)
            yield begin, length
    except (ValueError, IndexError, struct.error) as error:
        raise FileDamage(at, f"its index cannot be read: {error}") from error


def _entries_end(block: bytes) -> int:
    """What follows are places in it to start from, and their number."""
    (starts,) = struct.unpack_from("<I", block, len(block) - 4)
    return len(block) - 4 - 4 * int(starts & 0x7FFFFFFF)


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
