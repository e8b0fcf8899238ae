"""A transaction of the RocksDB store: one `WriteBatch`."""

from typing import TYPE_CHECKING, Final

import msgspec
from rocksdict import WriteBatch

from tailrace.engine.base import Due, Garbage, Transaction
from tailrace.engine.codec import (
    encode_link,
    encode_record,
    encode_state,
    encode_subscription,
)
from tailrace.engine.rocks.keys import ID, PAIR, SECRET
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import AppendRecord, StreamState
from tailrace.protocol.subscription import Link, SubscriptionState

if TYPE_CHECKING:
    from tailrace.engine.rocks.store import RocksStore

__all__ = ["NEXT_ID", "RocksTransaction", "decode_garbage"]

NEXT_ID: Final = b"next_id"
# Below this many records a stream is deleted key by key: range tombstones slow scans down.
_POINT_DELETES_MAX: Final = 256
# Finding the keys reads the records, so not if these are large.
_POINT_DELETES_BYTES_MAX: Final = 4 << 20
_FILE: Final = b"f"


class RocksTransaction(Transaction):
    def __init__(self, store: "RocksStore") -> None:
        self.batch = WriteBatch(raw_mode=True)
        self._store = store
        # The dict of the store, which is empty once the store is closed.
        self._handles = store.handles
        self._put = self.batch.put
        # Each append changes the row of its bucket: it is written once, at the end.
        self._buckets: dict[bytes, BucketState | None] = {}
        self._subscriptions: dict[bytes, SubscriptionState | None] = {}

    def create(self, key: bytes, state: StreamState) -> None:
        self._put(key, ID.pack(state.id), self._handles["names"])
        self.checkpoint(key, state)

    def append(self, stream_id: int, at: Offset, record: AppendRecord) -> None:
        self._put(
            PAIR.pack(stream_id, at.byte), encode_record(at, record), self._handles["records"]
        )

    def checkpoint(self, key: bytes, state: StreamState) -> None:
        self._put(ID.pack(state.id), encode_state(key, state), self._handles["states"])

    def remove(self, key: bytes, stream_id: int) -> None:
        self.batch.delete(key, self._handles["names"])
        self.batch.delete(ID.pack(stream_id), self._handles["states"])

    def put_snapshot(self, snapshot_id: int, content: bytes | None) -> None:
        # The file of a large snapshot exists already: the empty entry refers to it.
        self._put(ID.pack(snapshot_id), content or b"", self._handles["snapshots"])

    def discard(self, garbage: Garbage) -> None:
        value = ID.pack(garbage.bytes) + (_FILE if garbage.file else b"")
        self._put(_garbage_key(garbage), value, self._handles["garbage"])

    def put_held(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.batch.delete(key, self._handles["held"])
        else:
            self._put(key, value, self._handles["held"])

    def put_bucket(self, bucket: bytes, state: BucketState | None) -> None:
        self._buckets[bucket] = state

    def finish(self) -> None:
        """Add the rows of buckets and subscriptions. Nothing may be added after that."""
        for key, subscription in self._subscriptions.items():
            if subscription is None:
                self.batch.delete(key, self._handles["subscriptions"])
            else:
                self._put(key, encode_subscription(subscription), self._handles["subscriptions"])
        for bucket, state in self._buckets.items():
            if state is None:
                self.batch.delete(bucket, self._handles["buckets"])
            else:
                value = msgspec.msgpack.encode((state.created_at, state.streams, state.bytes))
                self._put(bucket, value, self._handles["buckets"])

    def put_subscription(self, key: bytes, state: SubscriptionState | None) -> None:
        self._subscriptions[key] = state

    def put_link(self, subscription_id: int, path: bytes, link: Link | None) -> None:
        key = ID.pack(subscription_id) + path
        if link is None:
            self.batch.delete(key, self._handles["links"])
        else:
            self._put(key, encode_link(link), self._handles["links"])

    def drop_links(self, subscription_id: int) -> None:
        first, end = ID.pack(subscription_id), ID.pack(subscription_id + 1)
        self.batch.delete_range(first, end, self._handles["links"])

    def put_secret(self, name: bytes, secret: bytes) -> None:
        self._put(SECRET + name, secret, self._handles["subscriptions"])

    def schedule(self, due: Due) -> None:
        self._put(PAIR.pack(due.deadline, due.id), due.key, self._handles["expiry"])

    def unschedule(self, due: Due) -> None:
        self.batch.delete(PAIR.pack(due.deadline, due.id), self._handles["expiry"])

    def reserve_ids(self, until: int) -> None:
        self._put(NEXT_ID, ID.pack(until))

    def reclaim(self, garbage: Garbage) -> None:
        if garbage.until is not None:
            # Not from 0: earlier tombstones would be scanned again each time.
            first = self._store.cut(garbage.id, garbage.until - garbage.bytes)
            end = self._store.cut(garbage.id, garbage.until)
            keys = (PAIR.pack(garbage.id, first), PAIR.pack(garbage.id, end))
            self._delete_records(*keys, garbage.bytes)
        else:
            self.batch.delete(ID.pack(garbage.id), self._handles["snapshots"])
            if not garbage.file:
                keys = (ID.pack(garbage.id), ID.pack(garbage.id + 1))
                self._delete_records(*keys, garbage.bytes)
        self.batch.delete(_garbage_key(garbage), self._handles["garbage"])

    def _delete_records(self, first: bytes, end: bytes, size: int) -> None:
        if size <= _POINT_DELETES_BYTES_MAX:
            keys = self._store.record_keys(first, end, _POINT_DELETES_MAX)
            if len(keys) < _POINT_DELETES_MAX:
                for key in keys:
                    self.batch.delete(key, self._handles["records"])
                return
        self.batch.delete_range(first, end, self._handles["records"])


def _garbage_key(garbage: Garbage) -> bytes:
    return ID.pack(garbage.id) if garbage.until is None else PAIR.pack(garbage.id, garbage.until)


def decode_garbage(key: bytes, value: bytes) -> Garbage:
    """An entry of the garbage family: an id, or an id and the offset before which it is garbage."""
    (size,) = ID.unpack_from(value)
    if len(key) == ID.size:
        return Garbage(ID.unpack(key)[0], size, file=value[ID.size :] == _FILE)
    stream_id, until = PAIR.unpack(key)
    return Garbage(stream_id, size, until)
