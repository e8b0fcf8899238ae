"""Keys of the database, and iteration over them. All are big-endian: they sort as numbers."""

import struct
from collections.abc import Iterator
from typing import Final

from rocksdict import Rdict, RdictIter, ReadOptions

__all__ = ["ID", "PAIR", "SECRET", "after_prefix", "items", "keys"]

ID: Final = struct.Struct(">Q")
PAIR: Final = struct.Struct(">QQ")
SECRET: Final = b"\xff"
"""Before the name of key material in `subscriptions`: after all keys of subscriptions."""


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all keys with a prefix; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def items(family: Rdict, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values from one key to before another; raises if a block cannot be read."""
    # Not `Rdict.items`, which ends silently there: a stream would seem to be shorter than it is.
    for at in _iterate(family, start, end):
        yield at.key(), at.value()


def keys(family: Rdict, start: bytes, end: bytes | None) -> Iterator[bytes]:
    """The same without values, which are not read if they are in blob files."""
    for at in _iterate(family, start, end):
        yield at.key()


def _iterate(family: Rdict, start: bytes, end: bytes | None) -> Iterator[RdictIter]:
    options = ReadOptions()
    if end is not None:
        # The iterator only points to its bound: `options` must live as long as it does.
        options.set_iterate_upper_bound(end)
    at = family.iter(options)
    at.seek(start)
    while at.valid():
        yield at
        at.next()
    at.status()
