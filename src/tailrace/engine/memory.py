"""The memory store: the reference implementation, for tests and for `--engine memory`."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from functools import partial
from heapq import nsmallest
from itertools import islice

from tailrace.engine.base import Due, Garbage, Spool, Store, Transaction, new_store_id
from tailrace.engine.codec import HEAD, decode_record, encode_record
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.machine import apply_append
from tailrace.protocol.names import bucket_of
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import AppendRecord, SnapshotInfo, StreamState
from tailrace.protocol.subscription import Link, SubscriptionState

__all__ = ["MemoryStore"]


def _start(value: bytes) -> int:
    """The byte offset of a stored record."""
    return int(HEAD.unpack_from(value)[6])


def _end(value: bytes) -> int:
    _, _, _, head, _, _, start, _ = HEAD.unpack_from(value)
    return int(start + len(value) - head)


class MemoryStore(Store):
    """Everything in dicts; nothing survives the process."""

    durable = False

    def __init__(self) -> None:
        self.next_id = 1
        self.store_id = new_store_id()
        self.states: dict[bytes, StreamState] = {}
        # The records of each stream, in order.
        self.records: dict[int, list[bytes]] = {}
        self.index: set[Due] = set()
        self.buckets: dict[bytes, BucketState] = {}
        # The keys of each bucket's streams, in order; those of the base surface under b"".
        self.listed: dict[bytes, list[bytes]] = {}
        self.snapshots: dict[int, list[bytes]] = {}
        self.discarded: dict[tuple[int, int | None], Garbage] = {}
        self.kept: dict[bytes, bytes] = {}
        # Its keys, in order.
        self.kept_keys: list[bytes] = []
        self.stored_subscriptions: dict[bytes, SubscriptionState] = {}
        self.stored_links: dict[int, dict[bytes, Link]] = {}
        self.secrets: dict[bytes, bytes] = {}

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

    def sync(self) -> None: ...

    def load(self, key: bytes) -> StreamState | None:
        state = self.states.get(key)
        if state is None or state.closed:
            return state
        records = self.records[state.id]
        for value in records[bisect_left(records, state.tail.byte, key=_start) :]:
            state = apply_append(state, decode_record(value)[1])
        return state

    def scan(self, stream_id: int, start: int, end: int) -> Iterator[bytes]:
        records = self.records.get(stream_id, [])
        first = max(0, bisect_right(records, start, key=_start) - 1)
        yield from records[first : bisect_left(records, end, key=_start)]

    def due(self, now: int, count_max: int) -> list[Due]:
        return nsmallest(count_max, (entry for entry in self.index if entry.deadline <= now))

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

    def held(self, first: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        start, stop = bisect_left(self.kept_keys, first), bisect_left(self.kept_keys, end)
        return [
            (key, self.kept[key]) for key in self.kept_keys[start : min(stop, start + count_max)]
        ]

    def subscriptions(self) -> Iterator[tuple[bytes, SubscriptionState]]:
        yield from sorted(self.stored_subscriptions.items())

    def links(self) -> Iterator[tuple[int, bytes, Link]]:
        for subscription_id, links in self.stored_links.items():
            for path, link in links.items():
                yield subscription_id, path, link

    def secret(self, name: bytes) -> bytes | None:
        return self.secrets.get(name)

    def spool(self, snapshot_id: int) -> Spool:
        return _MemorySpool(self.snapshots, snapshot_id)

    def read_snapshot(self, snapshot: SnapshotInfo, index: int) -> bytes:
        return self.snapshots[snapshot.id][index]

    def garbage(
        self, count_max: int, allow: Callable[[Garbage], bool] = lambda _: True
    ) -> list[Garbage]:
        return list(islice(filter(allow, self.discarded.values()), count_max))

    def unlink(self, garbage: Garbage) -> None: ...

    def trim(self, stream_id: int, until: int) -> None:
        """Delete the records that are wholly before a byte."""
        records = self.records.get(stream_id, [])
        # A record that starts there is kept, even if it is empty.
        before = bisect_left(records, until, key=_start)
        del records[: bisect_right(records, until, hi=before, key=_end)]

    def compact(self, first: tuple[int, int], last: tuple[int, int]) -> None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class _MemorySpool(Spool):
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
        self.changes.append(partial(self._store.records.__setitem__, state.id, []))
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
        self.changes.append(lambda: self._store.records[stream_id].append(value))

    def checkpoint(self, key: bytes, state: StreamState) -> None:
        self.changes.append(partial(self._store.states.__setitem__, key, state))

    def remove(self, key: bytes, stream_id: int) -> None:
        self.changes.append(partial(self._store.states.pop, key, None))
        self.changes.append(partial(self._unlist, bucket_of(key), key))

    def put_snapshot(self, snapshot_id: int, content: bytes | None) -> None:
        if content is not None:
            self.changes.append(partial(self._store.snapshots.__setitem__, snapshot_id, [content]))

    def discard(self, garbage: Garbage) -> None:
        at = (garbage.id, garbage.until)
        self.changes.append(partial(self._store.discarded.__setitem__, at, garbage))

    def put_held(self, key: bytes, value: bytes | None) -> None:
        self.changes.append(partial(self._keep, key, value))

    def _keep(self, key: bytes, value: bytes | None) -> None:
        kept, keys = self._store.kept, self._store.kept_keys
        if value is None:
            if kept.pop(key, None) is not None:
                del keys[bisect_left(keys, key)]
            return
        if key not in kept:
            insort(keys, key)
        kept[key] = value

    def put_bucket(self, bucket: bytes, state: BucketState | None) -> None:
        self.buckets[bucket] = state

    def schedule(self, due: Due) -> None:
        self.changes.append(partial(self._store.index.add, due))

    def unschedule(self, due: Due) -> None:
        self.changes.append(partial(self._store.index.discard, due))

    def reserve_ids(self, until: int) -> None:
        self.changes.append(partial(setattr, self._store, "next_id", until))

    def put_subscription(self, key: bytes, state: SubscriptionState | None) -> None:
        stored = self._store.stored_subscriptions
        if state is None:
            self.changes.append(partial(stored.pop, key, None))
        else:
            self.changes.append(partial(stored.__setitem__, key, state))

    def put_link(self, subscription_id: int, path: bytes, link: Link | None) -> None:
        self.changes.append(partial(self._link, subscription_id, path, link))

    def _link(self, subscription_id: int, path: bytes, link: Link | None) -> None:
        links = self._store.stored_links.setdefault(subscription_id, {})
        if link is None:
            links.pop(path, None)
        else:
            links[path] = link

    def drop_links(self, subscription_id: int) -> None:
        self.changes.append(partial(self._store.stored_links.pop, subscription_id, None))

    def put_secret(self, name: bytes, secret: bytes) -> None:
        self.changes.append(partial(self._store.secrets.__setitem__, name, secret))

    def reclaim(self, garbage: Garbage) -> None:
        at = (garbage.id, garbage.until)
        self.changes.append(partial(self._store.discarded.pop, at, None))
        if garbage.until is None:
            self.changes.append(partial(self._store.records.pop, garbage.id, None))
            self.changes.append(partial(self._store.snapshots.pop, garbage.id, None))
        else:
            self.changes.append(partial(self._store.trim, garbage.id, garbage.until))
