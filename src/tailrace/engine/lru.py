"""A cache of entries, bounded by their number, that evicts the least recently used one first."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from tailrace.engine.entry import Entry

__all__ = ["LruCache"]

E = TypeVar("E", bound=Entry[Any])


class LruCache(Generic[E]):
    """
    Entries by their keys.

    There is never a second entry of one key: an evicted entry is still found for as long as
    a batch, a reader or another entry refers to it.
    """

    def __init__(self, count_max: int, on_evict: Callable[[E], None] | None = None) -> None:
        self._entries: OrderedDict[bytes, E] = OrderedDict()
        self._evicted: WeakValueDictionary[bytes, E] = WeakValueDictionary()
        self._count_max = count_max
        self._on_evict = on_evict
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def get(self, key: bytes) -> E | None:
        """An entry, which becomes the most recently used one."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            self.hits += 1
            return entry
        entry = self._evicted.get(key)
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
            self.add(entry)
        return entry

    def peek(self, key: bytes) -> E | None:
        """An entry, without using it."""
        return self._entries.get(key) or self._evicted.get(key)

    def add(self, entry: E) -> None:
        """Cache an entry; evict others to make room for it."""
        self.evict(self._count_max - 1)
        self._evicted.pop(entry.key, None)
        self._entries[entry.key] = entry

    def evict(self, count_max: int) -> None:
        """Keep at most this many entries."""
        while self._entries and len(self._entries) > count_max:
            key, entry = self._entries.popitem(last=False)
            self._evicted[key] = entry
            if self._on_evict is not None:
                self._on_evict(entry)
