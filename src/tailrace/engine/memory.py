"""The memory store: the reference implementation, the model in tests, and `--engine memory`."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from tailrace.engine.base import Due, Garbage, Store, Transaction
from tailrace.engine.codec import encode_record
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import Appended, StreamState

__all__ = ["MemoryStore"]


class _Records:
    """The records of one stream, in order, with the byte offset of each beside them."""

    __slots__ = ("starts", "values")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.values: list[bytes] = []


class MemoryStore(Store):
    """Everything in dicts. A transaction changes them at once: there is no crash to survive."""

    durable = False

    def __init__(self) -> None:
        self.next_id = 1
        self.states: dict[bytes, StreamState] = {}
        self.records: dict[int, _Records] = {}
        self.index: list[Due] = []
        self.deleted: dict[int, Garbage] = {}

    def begin(self) -> "_MemoryTransaction":
        return _MemoryTransaction(self)

    def write(self, transaction: Transaction) -> None: ...

    def sync(self) -> None: ...

    def load(self, key: bytes) -> StreamState | None:
        return self.states.get(key)

    def scan(self, stream_id: int, start: int, end: int) -> Iterator[bytes]:
        records = self.records.get(stream_id)
        if records is None:
            return
        first = max(0, bisect_right(records.starts, start) - 1)
        last = bisect_left(records.starts, end)
        yield from records.values[first:last]

    def due(self, now: int, count_max: int) -> list[Due]:
        return [entry for entry in self.index[:count_max] if entry.deadline <= now]

    def garbage(self, count_max: int) -> list[Garbage]:
        return list(self.deleted.values())[:count_max]

    def compact(self) -> None: ...

    def free_bytes(self) -> int | None:
        return None

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class _MemoryTransaction(Transaction):
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def create(self, key: bytes, state: StreamState) -> None:
        self._store.states[key] = state
        self._store.records[state.id] = _Records()

    def append(self, stream_id: int, at: Offset, record: Appended) -> None:
        records = self._store.records[stream_id]
        records.starts.append(at.byte)
        records.values.append(encode_record(at, record))

    def checkpoint(self, key: bytes, state: StreamState) -> None:
        self._store.states[key] = state

    def delete(self, key: bytes, state: StreamState) -> None:
        del self._store.states[key]
        self._store.deleted[state.id] = Garbage(state.id, state.tail.byte)

    def schedule(self, due: Due) -> None:
        insort(self._store.index, due)

    def unschedule(self, due: Due) -> None:
        self._store.index.remove(due)

    def reserve_ids(self, until: int) -> None:
        self._store.next_id = until

    def reclaim(self, garbage: Garbage) -> None:
        del self._store.deleted[garbage.id]
        self._store.records.pop(garbage.id, None)
