"""
Which streams of a bucket changed since a position: in memory, and nothing is written for it.

Rule 1: a position is given out when a change is durable, in the same step in which readers may see
it. Whoever reads a position and then a stream sees at least all changes up to that position.

Rule 2: what is not known is not guessed. A position of another run of the server, or from before
what is remembered, is refused: the bucket must then be listed whole.

Of each stream only the last change is remembered, so that a bucket takes no more room than it has
streams that changed. When there are too many, buckets forget their oldest ones in turn.
"""

import re
import secrets
from collections import OrderedDict
from itertools import islice
from typing import Final

from tailrace.protocol.errors import PositionGone, QueryInvalid
from tailrace.protocol.names import bucket_of

__all__ = ["Changes"]

CHANGES_MAX: Final = 131_072
"""How many streams are remembered, in all buckets together."""
FORGET_COUNT: Final = 4096
"""So many are forgotten at a time: a dict is slow to lose its first key, one by one."""

_POSITION: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})", re.ASCII)


class _Changed:
    """The streams of a bucket with the number of the last change of each, oldest first."""

    __slots__ = ("floor", "numbers")

    def __init__(self, floor: int) -> None:
        self.numbers: dict[bytes, int] = {}
        # Changes up to here may be forgotten.
        self.floor = floor


class Changes:
    """What changed in every bucket, as far as it is remembered."""

    def __init__(self, count_max: int = CHANGES_MAX) -> None:
        self._run = secrets.token_hex(8)
        self._last = 0
        self._count = 0
        self._count_max = count_max
        self._buckets: OrderedDict[bytes, _Changed] = OrderedDict()
        # For buckets of which nothing is remembered.
        self._floor = 0

    @property
    def position(self) -> str:
        """Where we are: all changes so far lie before it."""
        return self.at(self._last)

    def at(self, number: int) -> str:
        """A position as text."""
        return f"{self._run}-{number}"

    def note(self, key: bytes) -> None:
        """A stream changed, durably; of those without a bucket nobody asks."""
        bucket = bucket_of(key)
        if not bucket:
            return
        changed = self._buckets.get(bucket)
        if changed is None:
            changed = self._buckets[bucket] = _Changed(self._floor)
        self._last = number = self._last + 1
        numbers = changed.numbers
        if numbers.pop(key, None) is None:
            self._count += 1
            if self._count > self._count_max:
                numbers[key] = number
                self._forget()
                return
        numbers[key] = number

    def _forget(self) -> None:
        """Make room: one bucket after the other forgets its oldest ones, at most half of them."""
        bucket, changed = self._buckets.popitem(last=False)
        count = min(FORGET_COUNT, (len(changed.numbers) + 1) // 2)
        for key in list(islice(changed.numbers, count)):
            changed.floor = changed.numbers.pop(key)
        self._count -= count
        if changed.numbers:
            self._buckets[bucket] = changed
        else:
            self._floor = max(self._floor, changed.floor)

    def since(self, bucket: bytes, position: str) -> list[tuple[bytes, int]]:
        """
        The streams of a bucket that changed after a position, each once, oldest change first.

        Raises:
            QueryInvalid: It is none.
            PositionGone: It is of another run, or too much was forgotten since.
        """
        number = self._number(position)
        changed = self._buckets.get(bucket)
        if number < (self._floor if changed is None else changed.floor) or number > self._last:
            raise PositionGone(position)
        if changed is None:
            return []
        found = []
        for item in reversed(changed.numbers.items()):
            if item[1] <= number:
                break
            found.append(item)
        found.reverse()
        return found

    def _number(self, position: str) -> int:
        match = _POSITION.fullmatch(position)
        if match is None:
            raise QueryInvalid("changed_since", "must be the position of a listing, as returned")
        if match[1] != self._run:
            raise PositionGone(position)
        return int(match[2])
