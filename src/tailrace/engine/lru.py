"""A cache of entries, bounded by their number, that evicts the least recently used one first."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import ref

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
        # Not a WeakValueDictionary, whose methods are Python: every miss looks here.
        self._evicted: dict[bytes, ref[E]] = {}
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
        entry = self._in_use(key)
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
            self.add(entry)
        return entry

    def peek(self, key: bytes) -> E | None:
        """An entry, without using it."""
        return self._entries.get(key) or self._in_use(key)

    def _in_use(self, key: bytes) -> E | None:
        evicted = self._evicted.get(key)
        return None if evicted is None else evicted()

    def add(self, entry: E) -> None:
        """Cache an entry; evict others to make room for it."""
        if len(self._entries) >= self._count_max:
            self.evict(self._count_max - 1)
        self._evicted.pop(entry.key, None)
        self._entries[entry.key] = entry

    def evict(self, count_max: int) -> None:
        """Keep at most this many entries."""
        while self._entries and len(self._entries) > count_max:
            key, entry = self._entries.popitem(last=False)
            self._evicted[key] = ref(entry, partial(self._forget, key))
            if self._on_evict is not None:
                self._on_evict(entry)

    def _forget(self, key: bytes, evicted: "ref[E]") -> None:
        if self._evicted.get(key) is evicted:
            del self._evicted[key]
