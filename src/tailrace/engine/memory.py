"""The memory store: the reference implementation, for tests and for `--engine memory`."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from functools import partial
from heapq import nsmallest
from itertools import islice

from tailrace.engine.base import Due, Garbage, Spool, Store, Transaction, anything
from tailrace.engine.codec import HEAD, decode_record, encode_record
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.machine import apply_append
from tailrace.protocol.names import bucket_of
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import AppendRecord, SnapshotInfo, StreamState

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
        self.buckets: dict[bytes, BucketState] = {}
        # The keys of each bucket's streams, in order; those of the base surface under b"".
        self.listed: dict[bytes, list[bytes]] = {}
        self.snapshots: dict[int, list[bytes]] = {}
        self.discarded: dict[tuple[int, int | None], Garbage] = {}

    def begin(self) -> "_MemoryTransaction":
        return _MemoryTransaction(self)

    def write(self, transaction: Transaction) -> None:
        assert isinstance(transaction, _MemoryTransaction)
        for change in transaction.changes:
            change()
        for bucket, state in transaction.buckets.items():
            if state is None:
                self.buckets.pop(bucket, None)
            else:
                self.buckets[bucket] = state

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
            state = apply_append(state, decode_record(value)[1])
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

    def bucket(self, bucket: bytes) -> BucketState | None:
        return self.buckets.get(bucket)

    def bucket_names(self, prefix: bytes, after: bytes, count_max: int) -> list[bytes]:
        found = (key for key in self.buckets if key > after and key.startswith(prefix))
        return nsmallest(count_max, found)

    def names(self, prefix: bytes, after: bytes, count_max: int) -> list[bytes]:
        keys = self.listed.get(bucket_of(prefix), [])
        first = max(bisect_left(keys, prefix), bisect_right(keys, after))
        found = keys[first : first + count_max]
        return [key for key in found if key.startswith(prefix)]

    def spool(self, snapshot_id: int) -> Spool:
        return _MemorySpool(self.snapshots, snapshot_id)

    def read_snapshot(self, snapshot: SnapshotInfo, index: int) -> bytes:
        return self.snapshots[snapshot.id][index]

    def garbage(self, count_max: int, allow: Callable[[Garbage], bool] = anything) -> list[Garbage]:
        return list(islice(filter(allow, self.discarded.values()), count_max))

    def unlink(self, garbage: Garbage) -> None: ...

    def trim(self, stream_id: int, until: int) -> None:
        """Delete the records that are wholly before a byte."""
        records = self.records.get(stream_id)
        if records is None:
            return
        count = bisect_left(records.starts, until)
        if count and count == bisect_right(records.starts, until):
            # No record starts there: the one before may extend beyond it.
            value = records.values[count - 1]
            if records.starts[count - 1] + len(value) - HEAD.unpack_from(value)[3] > until:
                count -= 1
        del records.starts[:count], records.values[:count]

    def compact(self, first: tuple[int, int], last: tuple[int, int]) -> None: ...

    def free_bytes(self) -> int | None:
        return None

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class _MemorySpool(Spool):
    """A large snapshot that is being written."""

    def __init__(self, snapshots: dict[int, list[bytes]], snapshot_id: int) -> None:
        self._snapshots = snapshots
        self._id = snapshot_id
        self._chunks: list[bytes] = []

    def write(self, chunk: bytes) -> None:
        self._chunks.append(chunk)

    def finish(self) -> None:
        self._snapshots[self._id] = self._chunks

    def discard(self) -> None:
        self._snapshots.pop(self._id, None)


class _MemoryTransaction(Transaction):
    """Changes to the dicts, made when it is written."""

    def __init__(self, store: MemoryStore) -> None:
        self.changes: list[Callable[[], object]] = []
        self.buckets: dict[bytes, BucketState | None] = {}
        self._store = store

    def create(self, key: bytes, state: StreamState) -> None:
        self.changes.append(partial(self._store.states.__setitem__, key, state))
        self.changes.append(partial(self._store.records.__setitem__, state.id, _Records()))
        self.changes.append(partial(self._list, bucket_of(key), key))

    def _list(self, bucket: bytes, key: bytes) -> None:
        insort(self._store.listed.setdefault(bucket, []), key)

    def _unlist(self, bucket: bytes, key: bytes) -> None:
        keys = self._store.listed[bucket]
        del keys[bisect_left(keys, key)]
        if not keys:
            del self._store.listed[bucket]

    def append(self, stream_id: int, at: Offset, record: AppendRecord) -> None:
        value = encode_record(at, record)
        self.changes.append(partial(self._store.append, stream_id, at.byte, value))

    def checkpoint(self, key: bytes, state: StreamState) -> None:
        self.changes.append(partial(self._store.states.__setitem__, key, state))

    def delete(self, key: bytes, state: StreamState) -> None:
        self.changes.append(partial(self._store.states.pop, key, None))
        self.changes.append(partial(self._unlist, bucket_of(key), key))
        self._discard(Garbage(state.id, state.tail.byte - state.earliest.byte))
        if state.snapshot is not None:
            self._discard(Garbage(state.snapshot.id, state.snapshot.size))

    def publish(
        self, key: bytes, before: StreamState, after: StreamState, content: bytes | None
    ) -> None:
        assert after.snapshot is not None
        if content is not None:
            self.changes.append(
                partial(self._store.snapshots.__setitem__, after.snapshot.id, [content])
            )
        self.checkpoint(key, after)
        if before.snapshot is not None:
            self._discard(Garbage(before.snapshot.id, before.snapshot.size))
        trimmed = after.earliest.byte - before.earliest.byte
        if trimmed:
            self._discard(Garbage(after.id, trimmed, until=after.earliest.byte))

    def _discard(self, garbage: Garbage) -> None:
        at = (garbage.id, garbage.until)
        self.changes.append(partial(self._store.discarded.__setitem__, at, garbage))

    def put_bucket(self, bucket: bytes, state: BucketState | None) -> None:
        self.buckets[bucket] = state

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
        at = (garbage.id, garbage.until)
        self.changes.append(partial(self._store.discarded.pop, at, None))
        if garbage.until is None:
            self.changes.append(partial(self._store.records.pop, garbage.id, None))
            self.changes.append(partial(self._store.snapshots.pop, garbage.id, None))
        else:
            self.changes.append(partial(self._store.trim, garbage.id, garbage.until))
