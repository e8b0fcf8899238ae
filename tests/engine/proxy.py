"""A store in front of another one: counts calls, holds the disk back, and breaks it on demand."""

import threading
from collections.abc import Iterator

from tailrace.engine.base import Due, Garbage, Store, Transaction
from tailrace.protocol.state import StreamState

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

    def garbage(self, count_max: int) -> list[Garbage]:
        return self.inner.garbage(count_max)

    def compact(self, first_id: int, last_id: int) -> None:
        self.inner.compact(first_id, last_id)

    def free_bytes(self) -> int | None:
        return self.inner.free_bytes()

    def interrupt(self) -> None:
        self.inner.interrupt()

    def close(self) -> None:
        self.gate.set()
        self.inner.close()
