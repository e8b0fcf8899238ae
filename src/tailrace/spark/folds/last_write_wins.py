"""
Last write wins: the state is the last message of each key, in the order of these messages.

The snapshot is a JSON array of the messages, unchanged. Applying them again gives the same state,
so a fold continues from it.
"""

from collections.abc import Hashable, Sequence
from operator import itemgetter

import msgspec

from tailrace.spark.folds.base import MessageRefused, array_of, take_array
from tailrace.spark.folds.keys import KeyMissing, key_reader

__all__ = ["LastWriteWins"]


class LastWriteWins:
    """The last message of each key."""

    def __init__(self, snapshot: bytes | None, path: tuple[str, ...]) -> None:
        self._reader = key_reader(path)
        self._last: dict[Hashable, bytes] = {}
        take_array(self, snapshot)

    def take(self, values: Sequence[bytes]) -> None:
        keys = self._keys(values)
        # The last index of each key. Most keys repeat, so the loop is short.
        indexes = dict(zip(keys, range(len(values)), strict=True))
        last = self._last
        for key, index in sorted(indexes.items(), key=itemgetter(1)):
            # Removed first: a dictionary keeps the position of an existing key.
            last.pop(key, None)
            last[key] = values[index]

    def finish(self) -> bytes:
        return array_of(list(self._last.values()))

    def _keys(self, values: Sequence[bytes]) -> list[Hashable]:
        try:
            return self._reader.all(values)
        except msgspec.DecodeError:
            return [self._key(index, value) for index, value in enumerate(values)]

    def _key(self, index: int, value: bytes) -> Hashable:
        try:
            return self._reader.one(value)
        except KeyMissing as missing:
            raise MessageRefused(index, str(missing)) from None
