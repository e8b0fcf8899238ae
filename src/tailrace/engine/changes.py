"""
The streams of a bucket that changed since a position. Kept in memory only.

Rule 1: a position is issued when a change is durable, in the same step that publishes it to
readers. A client that reads a position and then a stream sees at least all changes up to that
position.

Rule 2: the response is complete, or the position is refused. A position of another bucket, of
another run of the server, or from before what is remembered is gone: the client must then list the
whole bucket.

Rule 3: a bucket counts its own changes. A position says nothing about other buckets.

Of each stream only its last change is remembered, so a bucket takes no more memory than it has
streams that changed. When there are too many in all, buckets forget their oldest ones in turn.
"""

import re
import secrets
from collections import OrderedDict
from itertools import islice
from typing import Final

from tailrace.protocol.errors import PositionGone, QueryInvalid

__all__ = ["Changes"]

CHANGES_MAX: Final = 131_072
"""How many streams, and buckets, are remembered in total."""
FORGET_COUNT: Final = 4096
"""This many are forgotten at a time: removing the first keys of a dict one by one is slow."""

_POSITION: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{1,48})", re.ASCII)


class _BucketChanges:
    """The streams of a bucket with the number of the last change of each, oldest first."""

    __slots__ = ("floor", "last", "log_id", "numbers")

    def __init__(self) -> None:
        # Tells this log from that of another bucket, and from one that was forgotten.
        self.log_id = secrets.token_hex(8)
        self.numbers: dict[bytes, int] = {}
        self.last = 0
        # Changes up to this number may be forgotten.
        self.floor = 0

    def position(self, number: int) -> str:
        return f"{self.log_id}-{number:x}"


class Changes:
    """The changes of every bucket, as far as they are remembered."""

    def __init__(self, count_max: int = CHANGES_MAX) -> None:
        self._count = 0
        self._count_max = count_max
        self._buckets: OrderedDict[bytes, _BucketChanges] = OrderedDict()

    def position(self, bucket: bytes) -> str:
        """The current position of a bucket: all its changes so far are before it."""
        changes = self._bucket(bucket)
        self._buckets.move_to_end(bucket)
        self._make_room()
        return changes.position(changes.last)

    def note(self, bucket: bytes, key: bytes) -> None:
        """A stream of a bucket changed, and the change is durable."""
        changes = self._buckets.get(bucket) or self._bucket(bucket)
        changes.last = number = changes.last + 1
        numbers = changes.numbers
        if numbers.pop(key, None) is None:
            self._count += 1
        numbers[key] = number
        if self._count > self._count_max:
            self._make_room()

    def _bucket(self, bucket: bytes) -> _BucketChanges:
        changes = self._buckets.get(bucket)
        if changes is None:
            changes = self._buckets[bucket] = _BucketChanges()
            self._count += 1
        return changes

    def _make_room(self) -> None:
        """One bucket after the other forgets its oldest changes, at most half of them."""
        while self._count > self._count_max:
            bucket, changes = self._buckets.popitem(last=False)
            count = min(FORGET_COUNT, (len(changes.numbers) + 1) // 2)
            for key in list(islice(changes.numbers, count)):
                changes.floor = changes.numbers.pop(key)
            self._count -= count
            if changes.numbers:
                self._buckets[bucket] = changes
            else:
                self._count -= 1

    def at(self, bucket: bytes, number: int) -> str:
        """The position of a change that `since` just returned."""
        return self._buckets[bucket].position(number)

    def since(self, bucket: bytes, position: str) -> list[tuple[bytes, int]]:
        """
        The streams that changed after a position, each once, oldest change first.

        Raises:
            QueryInvalid: It is not a position.
            PositionGone: It is of another bucket or run, or too much was forgotten since.
        """
        match = _POSITION.fullmatch(position)
        if match is None:
            raise QueryInvalid("changed_since", "must be the position of a listing, as returned")
        changes = self._buckets.get(bucket)
        number = int(match[2], 16)
        if (
            changes is None
            or match[1] != changes.log_id
            or not changes.floor <= number <= changes.last
        ):
            raise PositionGone(position)
        self._buckets.move_to_end(bucket)
        found = []
        for item in reversed(changes.numbers.items()):
            if item[1] <= number:
                break
            found.append(item)
        found.reverse()
        return found
