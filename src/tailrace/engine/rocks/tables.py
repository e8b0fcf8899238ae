"""
The checksums of all blocks of a table.

RocksDB verifies the blocks that it reads. It does not read filters, nor data that a deleted range
covers: a scan skips that data, and a compaction fails if it is damaged.

A table ends with a footer. Before it is the metaindex, which says where filter, index and
properties are; the index says where the data is. Each block is followed by a byte for its
compression and a checksum. This module knows the form that tables have in format 6, with XXH3 and
with indexes that are not compressed or compressed by LZ4. Anything else is not checked.

    index       entries: zero, size of a key, the key, where a block begins, its size; all varints
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import lz4.block
import xxhash

from tailrace.engine.rocks.findings import Damage, NotChecked

__all__ = ["check_table"]

_FOOTER: Final = struct.Struct("<B4sIII24sIQ")
_EXTENDED_MAGIC: Final = b"\x3e\x00\x7a\x00"
_TABLE_MAGIC: Final = 0x88E241B785F4CFF7
_FORMAT: Final = 6
_XXH3: Final = 4
_TRAILER: Final = struct.Struct("<BI")
_LAST_BYTE_PRIME: Final = 0x6B9083D9
_U32: Final = 0xFFFFFFFF
_INDEX: Final = b"rocksdb.index"
_UNCOMPRESSED, _LZ4 = 0, 4


def check_table(path: Path, advance: Callable[[int], object]) -> None:
    """
    Verify all blocks of a table.

    Raises:
        Damage: The checksum of a block does not match.
        NotChecked: The table has an unknown form.
    """
    end = path.stat().st_size - _FOOTER.size
    with path.open("rb") as file:
        file.seek(max(end, 0))
        footer = file.read()
        if len(footer) != _FOOTER.size:
            raise Damage(0, "the file is too short for a table")
        kind, extended, _, context, meta_size, _, version, magic = _FOOTER.unpack(footer)
        known = (_XXH3, _EXTENDED_MAGIC, _FORMAT, _TABLE_MAGIC)
        if (kind, extended, version, magic) != known:
            raise NotChecked(end, "the footer of the table is of an unknown kind")
        blocks = _Blocks(file, end, context, advance)
        meta_at = end - _TRAILER.size - meta_size
        if meta_at < 0:
            raise Damage(end, "the footer points outside of the file")
        meta, _ = blocks.read(meta_at, meta_size)
        try:
            for name, begin, size in _metaindex(meta):
                block, compression = blocks.read(begin, size)
                if name == _INDEX:
                    for data_begin, data_size in _index(block, compression):
                        blocks.read(data_begin, data_size)
        except (ValueError, IndexError, RuntimeError, struct.error) as error:
            # The checksums of the metaindex and of the index match: their form is unknown.
            reason = f"the index of the table is of an unknown kind: {error}"
            raise NotChecked(meta_at, reason) from error


class _Blocks:
    """The blocks of a table, each verified as it is read."""

    def __init__(
        self, file: BinaryIO, end: int, context: int, advance: Callable[[int], object]
    ) -> None:
        self._file = file
        self._end = end
        self._context = context
        self._advance = advance

    def read(self, at: int, size: int) -> tuple[bytes, int]:
        """A block as it is stored, and its compression."""
        # Before it is read: a damaged length can be of any size.
        if at < 0 or at + size + _TRAILER.size > self._end:
            raise ValueError("a block is outside of the file")
        self._file.seek(at)
        block = self._file.read(size)
        compression, stored = _TRAILER.unpack(self._file.read(_TRAILER.size))
        check = (xxhash.xxh3_64_intdigest(block) & _U32) ^ (compression * _LAST_BYTE_PRIME & _U32)
        if self._context:
            # So that a block at another offset, or of another file, does not match.
            check += self._context ^ ((at & _U32) + (at >> 32) & _U32)
        if stored != check & _U32:
            raise Damage(at, "the checksum of a block does not match")
        self._advance(size)
        return block, compression


def _metaindex(block: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The names of blocks, and where they are."""
    name = b""
    at, end = 0, _entries_end(block)
    while at < end:
        shared, at = _varint(block, at)
        key, at = _varint(block, at)
        value, at = _varint(block, at)
        name = name[:shared] + block[at : at + key]
        begin, after = _varint(block, at + key)
        size, _ = _varint(block, after)
        at += key + value
        yield name, begin, size


def _index(block: bytes, compression: int) -> Iterator[tuple[int, int]]:
    """Where the blocks of data are."""
    if compression not in (_UNCOMPRESSED, _LZ4):
        raise ValueError(f"compression {compression}")
    if compression == _LZ4:
        size, begin = _varint(block, 0)
        block = lz4.block.decompress(block[begin:], uncompressed_size=size)
    at, end = 0, _entries_end(block)
    while at < end:
        shared, at = _varint(block, at)
        if shared:
            raise ValueError("keys with prefixes in common")
        key, at = _varint(block, at)
        begin, at = _varint(block, at + key)
        size, at = _varint(block, at)
        yield begin, size


def _entries_end(block: bytes) -> int:
    """The entries are followed by restart points, and by the number of these."""
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    return len(block) - 4 - 4 * int(restarts & 0x7FFFFFFF)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
