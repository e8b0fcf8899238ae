"""
Which streams of a bucket changed since a position: in memory, and nothing is written for it.

Rule 1: a position is given out when a change is durable, in the same step in which readers may see
it. Whoever reads a position and then a stream sees at least all changes up to that position.

Rule 2: what is not known is not guessed. A position of another run of the server, or from before
what is remembered, is refused: the bucket must then be listed whole.

Rule 3: a position tells nothing to whoever holds it. Numbers count the changes of all buckets, and
not everybody may know how much others write. So the number is sealed: no two texts are alike, not
even of one number, and one that was tampered with is as good as one of another run.

Of each stream only the last change is remembered, so that a bucket takes no more room than it has
streams that changed. When there are too many, buckets forget their oldest ones in turn.
"""

import hmac
import re
import secrets
from collections import OrderedDict
from hashlib import blake2b
from itertools import islice
from typing import Final

from tailrace.protocol.errors import PositionGone, QueryInvalid
from tailrace.protocol.names import bucket_of

__all__ = ["Changes"]

CHANGES_MAX: Final = 131_072
"""How many streams are remembered, in all buckets together."""
FORGET_COUNT: Final = 4096
"""So many are forgotten at a time: a dict is slow to lose its first key, one by one."""

_POSITION: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{1,48})", re.ASCII)
_WORD_BYTES: Final = 8
"""A sealed number is three of them: a salt, the number under a pad, and a tag over both."""


class _Seal:
    """Numbers as texts that only this run can read."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def close(self, number: int) -> str:
        salt = secrets.token_bytes(_WORD_BYTES)
        hidden = number ^ self._word(salt, b"pad")
        said = salt + hidden.to_bytes(_WORD_BYTES)
        return (said + self._word(said, b"tag").to_bytes(_WORD_BYTES)).hex()

    def open(self, text: str) -> int | None:
        """The number; None if this is not the text of one."""
        if len(text) != 6 * _WORD_BYTES:
            return None
        sealed = bytes.fromhex(text)
        said, tag = sealed[: 2 * _WORD_BYTES], sealed[2 * _WORD_BYTES :]
        # Else to try others that are near would be to count after all.
        if not hmac.compare_digest(tag, self._word(said, b"tag").to_bytes(_WORD_BYTES)):
            return None
        salt, hidden = said[:_WORD_BYTES], said[_WORD_BYTES:]
        return int.from_bytes(hidden) ^ self._word(salt, b"pad")

    def _word(self, data: bytes, use: bytes) -> int:
        digest = blake2b(data, digest_size=_WORD_BYTES, key=self._key, person=use)
        return int.from_bytes(digest.digest())


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
        self._seal = _Seal()
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
        """A position as text, another one each time."""
        return f"{self._run}-{self._seal.close(number)}"

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
        number = self._seal.open(match[2]) if match[1] == self._run else None
        if number is None:
            raise PositionGone(position)
        return number
