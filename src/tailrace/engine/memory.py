"""The memory store: the reference implementation, the model in tests, and `--engine memory`."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from tailrace.engine.base import Due, Garbage, Store, Transaction
from tailrace.engine.codec import decode_record, encode_record
from tailrace.protocol.machine import apply_appended
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
    """Everything in dicts; nothing survives the process."""

    durable = False

    def __init__(self) -> None:
        self.next_id = 1
        self.states: dict[bytes, StreamState] = {}
        self.records: dict[int, _Records] = {}
        self.index: list[Due] = []
        self.deleted: dict[int, Garbage] = {}

    def begin(self) -> "_MemoryTransaction":
        return _MemoryTransaction(self)

    def write(self, transaction: Transaction) -> None:
        assert isinstance(transaction, _MemoryTransaction)
        for change in transaction.changes:
            change()

    def append(self, stream_id: int, start: int, value: bytes) -> None:
        records = self.records[stream_id]
        records.starts.append(start)
        records.values.append(value)

    def sync(self) -> None: ...

    def load(self, key: bytes) -> StreamState | None:
        state = self.states.get(key)
        if state is None or state.closed:
            return state
        records = self.records[state.id]
        for value in records.values[bisect_left(records.starts, state.tail.byte) :]:
            state = apply_appended(state, decode_record(value)[1])
        return state

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
        return list(islice(self.deleted.values(), count_max))

    def compact(self, first_id: int, last_id: int) -> None: ...

    def free_bytes(self) -> int | None:
        return None

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class _MemoryTransaction(Transaction):
    """Changes to the dicts, made when it is written."""

    def __init__(self, store: MemoryStore) -> None:
        self.changes: list[Callable[[], object]] = []
        self._store = store

    def create(self, key: bytes, state: StreamState) -> None:
        self.changes.append(partial(self._store.states.__setitem__, key, state))
        self.changes.append(partial(self._store.records.__setitem__, state.id, _Records()))

    def append(self, stream_id: int, at: Offset, record: Appended) -> None:
        value = encode_record(at, record)
        self.changes.append(partial(self._store.append, stream_id, at.byte, value))

    def checkpoint(self, key: bytes, state: StreamState) -> None:
        self.changes.append(partial(self._store.states.__setitem__, key, state))

    def delete(self, key: bytes, state: StreamState) -> None:
        garbage = Garbage(state.id, state.tail.byte)
        self.changes.append(partial(self._store.states.pop, key, None))
        self.changes.append(partial(self._store.deleted.__setitem__, state.id, garbage))

    def schedule(self, due: Due) -> None:
        def change() -> None:
            if due not in self._store.index:
                insort(self._store.index, due)

        self.changes.append(change)

    def unschedule(self, due: Due) -> None:
        def change() -> None:
            if due in self._store.index:
                self._store.index.remove(due)

        self.changes.append(change)

    def reserve_ids(self, until: int) -> None:
        self.changes.append(partial(setattr, self._store, "next_id", until))

    def reclaim(self, garbage: Garbage) -> None:
        self.changes.append(partial(self._store.deleted.pop, garbage.id, None))
        self.changes.append(partial(self._store.records.pop, garbage.id, None))
