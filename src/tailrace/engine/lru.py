"""What is hot: values in memory, up to a number of them, in the order of their last use."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["LruCache"]

T = TypeVar("T")

EVICT_LOOKS_MAX: Final = 8
"""How many values one addition looks at to make room: most may be in use."""


class LruCache(Generic[T]):
    """An LRU that asks before it forgets."""

    def __init__(self, count_max: int, forgettable: Callable[[T], bool]) -> None:
        self._values: OrderedDict[bytes, T] = OrderedDict()
        self._count_max = count_max
        self._forgettable = forgettable
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def get(self, key: bytes) -> T | None:
        """A value, which counts as used."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
            self.hits += 1
        else:
            self.misses += 1
        return value

    def peek(self, key: bytes) -> T | None:
        """A value, whose place among the used ones stays as it is."""
        return self._values.get(key)

    def keep(self, key: bytes, value: T) -> None:
        """Have a value be found from now on, and make room for it."""
        if len(self._values) >= self._count_max:
            self._evict()
        self._values[key] = value

    def _evict(self) -> None:
        """Forget values that were not used for the longest time and that nobody needs."""
        values = self._values
        for _ in range(EVICT_LOOKS_MAX):
            if len(values) < self._count_max or not values:
                return
            key, value = next(iter(values.items()))
            if self._forgettable(value):
                del values[key]
            else:
                # In use: to the young end, so that the next round looks elsewhere.
                values.move_to_end(key)
