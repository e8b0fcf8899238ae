"""The cache of entries: bounded, least recently used first, and never two entries of one key."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.engine.entry import Entry
from tailrace.engine.lru import LruCache


def cache(names: str) -> LruCache[Entry[Any]]:
    found: LruCache[Entry[Any]] = LruCache(3)
    add(found, names)
    return found


def add(entries: LruCache[Entry[Any]], names: str) -> None:
    for name in names:
        entries.add(Entry(name.encode(), None))


def cached(entries: LruCache[Entry[Any]], names: str) -> str:
    return "".join(name for name in names if name.encode() in entries)


def test_the_least_recently_used_entry_is_evicted() -> None:
    entries = cache("abcd")
    assert cached(entries, "abcd") == "bcd"
    assert len(entries) == 3


@pytest.mark.parametrize(("uses", "left"), [(True, "acd"), (False, "bcd")])
def test_get_uses_an_entry_and_peek_does_not(uses: bool, left: str) -> None:
    entries = cache("abc")
    found = entries.get(b"a") if uses else entries.peek(b"a")
    assert found is not None and found.key == b"a"
    del found
    add(entries, "d")
    assert cached(entries, "abcd") == left
    gone = b"b" if uses else b"a"
    assert entries.get(gone) is None and entries.peek(gone) is None


def test_an_entry_in_use_is_found_after_its_eviction() -> None:
    entries = cache("a")
    entry = entries.peek(b"a")
    assert entry is not None
    add(entries, "bcd")
    assert b"a" not in entries
    assert entries.peek(b"a") is entry and b"a" not in entries
    assert entries.get(b"a") is entry and b"a" in entries
    assert len(entries) == 3


def test_unused_evicted_entries_take_no_memory() -> None:
    entries = cache("abcdefgh")
    assert len(entries._evicted) == 0


def test_the_callback_sees_each_evicted_entry_once() -> None:
    evicted: list[bytes] = []
    entries: LruCache[Entry[Any]] = LruCache(2, lambda entry: evicted.append(entry.key))
    add(entries, "abcd")
    assert evicted == [b"a", b"b"]
    entries.evict(0)
    assert evicted == [b"a", b"b", b"c", b"d"] and len(entries) == 0


def test_hits_and_misses_are_counted() -> None:
    entries = cache("ab")
    for name in (b"a", b"b", b"x"):
        entries.get(name)
    assert (entries.hits, entries.misses) == (2, 1)
