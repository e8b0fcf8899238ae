"""
Group commit: whatever arrived together shares one write and one fsync.

Rule 1: nothing is told to anyone before it is durable.

Rule 2: one batch is written or synced at a time. While the disk works on one, commands gather in
the next.

Rule 3: a failed write or fsync is final. Everything pending is answered as unknown, nothing more is
written, and the process must end. An fsync is never tried again: after a failed one, the kernel may
have dropped the pages and will report success.

Theory of operation:

    record    put a change into the open batch              many times in one turn of the loop
    _flush    write the open batch and have it synced       at the end of that turn
    _settle   publish states, wake readers, send replies    once it is durable

The fsync runs where it costs least. On a disk that answers at once the loop itself waits for it:
handing the batch to a thread and getting the GIL back takes about as long, and halves the batches.
As soon as an fsync is slower, a thread does them, so that reads go on meanwhile.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from tailrace.engine.base import Store, Transaction
from tailrace.engine.changes import Changes
from tailrace.engine.entry import StreamEntry
from tailrace.engine.errors import StorageFailed
from tailrace.engine.meters import Meters
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.errors import Refusal
from tailrace.protocol.machine import Verdict
from tailrace.protocol.names import NO_BUCKET
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import AppendRecord, StreamState

if TYPE_CHECKING:
    from tailrace.engine.buckets import BucketEntry

__all__ = ["CommitBatch", "StreamChange", "GroupCommit", "Listener", "Outcome", "Reply", "Traced"]

T = TypeVar("T")

Outcome = tuple[Verdict, StreamState | None] | Refusal
"""What became of a command: its verdict and the state after it, or why it was refused."""

Reply = Callable[[Outcome], None]

Traced = Callable[[int, float, float], None]
"""Told how many appends a batch had, and when its fsync began and ended."""

SYNC_INLINE_S_MAX: Final = 0.002
"""A slower fsync than this moves the next ones to the thread."""
SLOW_DISK_S: Final = 1.0
"""For this long; then the loop tries one itself again."""


class StreamChange:
    """What one batch does to one stream, in order."""

    __slots__ = ("after", "before", "deleted", "is_news", "records", "stream")

    def __init__(self, stream: StreamEntry) -> None:
        self.stream = stream
        # Not `durable`: an earlier batch may still be on its way to the disk.
        self.before = stream.state
        self.after = stream.state
        self.records: list[AppendRecord] = []
        self.deleted = False
        # More than that it was read: it counts as changed.
        self.is_news = False


class Listener(Protocol):
    """Whoever wants to know of commits; called on the loop, after states are published."""

    def committed(self, change: StreamChange) -> None: ...


class CommitBatch:
    """Changes that share one write and one fsync, and the replies that wait for it."""

    __slots__ = (
        "appends", "buckets", "bytes", "changes", "dirty", "messages", "replies", "transaction",
    )  # fmt: skip

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.changes: dict[StreamEntry, StreamChange] = {}
        self.buckets: dict[BucketEntry, BucketState | None] = {}
        self.replies: list[tuple[Reply, Outcome]] = []
        self.dirty = False
        # What was appended, whatever became of it in the same batch: for the metrics.
        self.appends = self.messages = self.bytes = 0

    def count(self, before: Offset, after: Offset) -> None:
        """An append moved a tail."""
        self.appends += 1
        self.messages += after.message - before.message
        self.bytes += after.byte - before.byte

    def change(self, stream: StreamEntry) -> StreamChange:
        """What this batch does to a stream, to be added to."""
        self.dirty = True
        stream.pending = self
        change = self.changes.get(stream)
        if change is None:
            change = self.changes[stream] = StreamChange(stream)
        return change


class GroupCommit:
    """The way of batches to the disk. Construct and use it on a running event loop."""

    def __init__(
        self, store: Store, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self.failure: BaseException | None = None
        self.listener: Listener | None = None
        self.open = CommitBatch(store.begin())
        self.syncing: CommitBatch | None = None
        self.changes = Changes()
        self.meters = Meters()
        self.traced: Traced | None = None
        """Told of each batch that was synced, before its replies are sent."""
        self.batches = 0
        """How many were written so far: whether there is anything to make way for."""
        self._store = store
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        # Until then the disk counts as slow; asked of by the loop, set by whoever syncs.
        self._slow_until = 0.0
        # When the last fsync began and ended: of the batch that is to be settled next.
        self._synced = (0.0, 0.0)
        self._to_sync: queue.SimpleQueue[CommitBatch | None] = queue.SimpleQueue()
        self._syncer: threading.Thread | None = None
        if store.durable:
            self._syncer = threading.Thread(target=self._sync_loop, name="syncer", daemon=True)
            self._syncer.start()

    def schedule(self) -> None:
        """Commit at the end of this turn of the loop, or when the batch under way is done."""
        self.open.dirty = True
        if not self._scheduled and self.syncing is None:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        batch = self.open
        if not batch.dirty or self.syncing is not None or self.failure is not None:
            return
        self.open = CommitBatch(self._store.begin())
        self.syncing = batch
        self.batches += 1
        try:
            self._store.write(batch.transaction)
        except BaseException as error:  # rocksdict raises plain Exception, and panics beside it
            self._fail(error)
            return
        if self._syncer is not None:
            if time.monotonic() < self._slow_until:
                self._to_sync.put(batch)
                return
            if not self._sync(self._fail):
                return
        self._settle(batch)

    def _sync(self, fail: Callable[[BaseException], object]) -> bool:
        start = time.monotonic()
        try:
            self._store.sync()
        except BaseException as error:
            fail(error)
            return False
        end = time.monotonic()
        self.meters.sync_s.observe(end - start)
        self._synced = (start, end)
        if end - start > SYNC_INLINE_S_MAX:
            self._slow_until = end + SLOW_DISK_S
        return True

    def _sync_loop(self) -> None:
        """The syncer's thread: the fsync releases the GIL, so the loop runs on beside it."""
        call = self._loop.call_soon_threadsafe
        while (batch := self._to_sync.get()) is not None:
            if not self._sync(lambda error: call(partial(self._fail, error))):
                return
            call(self._settle, batch)

    def _settle(self, batch: CommitBatch) -> None:
        """The batch is durable: publish it, wake readers, answer."""
        if self.failure is not None:
            return
        self.syncing = None
        if self.open.dirty:
            self.schedule()
        appends = self.meters.committed(batch)
        if self.traced is not None and self._syncer is not None:
            try:
                self.traced(appends, *self._synced)
            except Exception as error:
                self._report(error)
        note = self.changes.note
        for stream, change in batch.changes.items():
            stream.durable = change.after
            if stream.pending is batch:
                stream.pending = None
            if change.is_news and stream.key[:1] != NO_BUCKET:
                note(stream.key)
        for bucket, state in batch.buckets.items():
            bucket.durable = state
            if bucket.pending is batch:
                bucket.pending = None
        listener = self.listener
        if listener is not None:
            for change in batch.changes.values():
                if change.stream.live is not None:
                    self._tell(listener.committed, change)
        for reply, outcome in batch.replies:
            try:
                reply(outcome)
            except Exception as error:
                self._report(error)

    def _fail(self, error: BaseException) -> None:
        """Rule 3. Whether the pending commands are stored is unknown, and so they are told."""
        if self.failure is not None:
            return
        self.failure = error
        refusal = StorageFailed()
        for batch in (self.syncing, self.open):
            if batch is not None:
                for reply, _ in batch.replies:
                    self._tell(reply, refusal)
                batch.replies.clear()
        if self._on_failure is not None:
            self._on_failure(error)

    def _tell(self, listener: Callable[[T], object], news: T) -> None:
        """Call out; whatever goes wrong there concerns nobody else who is to be told."""
        try:
            listener(news)
        except Exception as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": "failed to deliver a committed outcome", "exception": error}
        )

    async def close(self) -> None:
        """Commit what is pending, then end the syncer."""
        while self.failure is None and (self.syncing is not None or self.open.dirty):
            if self.open.dirty:
                self.schedule()
            await asyncio.sleep(0.001)
        if self._syncer is not None:
            self._to_sync.put(None)
            await asyncio.to_thread(self._syncer.join)
