"""A store in front of another one: counts calls, holds the disk back, and breaks it on demand."""

import threading
from collections.abc import Callable, Iterator

from tailrace.engine.base import Due, Garbage, Spool, Store, Transaction
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.state import SnapshotInfo, StreamState
from tailrace.protocol.subscription import Link, SubscriptionState

__all__ = ["StoreProxy"]


class StoreProxy(Store):
    """
    `durable` whatever stands behind it, so that the engine syncs.

    `gate` is open at first; while it is cleared, `sync` blocks its thread, as a slow disk does.
    """

    durable = True

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.next_id = inner.next_id
        self.gate = threading.Event()
        self.gate.set()
        self.writes = 0
        self.syncs = 0
        self.syncs_done = 0
        self.write_error: BaseException | None = None
        self.sync_error: BaseException | None = None
        self.due_error: BaseException | None = None

    def begin(self) -> Transaction:
        return self.inner.begin()

    def write(self, transaction: Transaction) -> None:
        self.writes += 1
        if self.write_error is not None:
            raise self.write_error
        self.inner.write(transaction)

    def sync(self) -> None:
        self.syncs += 1
        if not self.gate.wait(20):
            raise AssertionError("the test never opened the gate")
        if self.sync_error is not None:
            raise self.sync_error
        self.inner.sync()
        self.syncs_done += 1

    def load(self, key: bytes) -> StreamState | None:
        return self.inner.load(key)

    def scan(self, stream_id: int, start: int, end: int) -> Iterator[bytes]:
        return self.inner.scan(stream_id, start, end)

    def due(self, now: int, count_max: int) -> list[Due]:
        if self.due_error is not None:
            raise self.due_error
        return self.inner.due(now, count_max)

    def garbage(
        self, count_max: int, allow: Callable[[Garbage], bool] = lambda _: True
    ) -> list[Garbage]:
        return self.inner.garbage(count_max, allow)

    def bucket(self, bucket: bytes) -> BucketState | None:
        return self.inner.bucket(bucket)

    def bucket_names(self, prefix: bytes, after: bytes, count_max: int) -> list[bytes]:
        return self.inner.bucket_names(prefix, after, count_max)

    def names(self, prefix: bytes, after: bytes, count_max: int) -> list[bytes]:
        return self.inner.names(prefix, after, count_max)

    def held(self, first: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        return self.inner.held(first, end, count_max)

    def spool(self, snapshot_id: int) -> Spool:
        return self.inner.spool(snapshot_id)

    def read_snapshot(self, snapshot: SnapshotInfo, index: int) -> bytes:
        return self.inner.read_snapshot(snapshot, index)

    def subscriptions(self) -> Iterator[tuple[bytes, SubscriptionState]]:
        return self.inner.subscriptions()

    def links(self) -> Iterator[tuple[int, bytes, Link]]:
        return self.inner.links()

    def secret(self, name: bytes) -> bytes | None:
        return self.inner.secret(name)

    def unlink(self, garbage: Garbage) -> None:
        self.inner.unlink(garbage)

    def compact(self, first: tuple[int, int], last: tuple[int, int]) -> None:
        self.inner.compact(first, last)

    def free_bytes(self) -> int | None:
        return self.inner.free_bytes()

    def interrupt(self) -> None:
        self.inner.interrupt()

    def close(self) -> None:
        self.gate.set()
        self.inner.close()
