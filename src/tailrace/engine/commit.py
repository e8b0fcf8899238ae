"""
Group commit: commands that arrive together share one write and one fsync.

Rule 1: no outcome is sent, and no state is published, before it is durable.

Rule 2: one batch is written or synced at a time. While the disk works on one, commands gather in
the next.

Rule 3: a failed write or fsync is final. Every pending command gets StorageFailed, nothing more is
written, and the process must exit. An fsync is never retried: after a failed one, the kernel may
have dropped the pages and will report success.

Theory of operation:

    change    add a change to the open batch                many times in one turn of the loop
    _flush    write the open batch and have it synced       at the end of that turn
    _settle   publish states, wake readers, send replies    once it is durable

The fsync runs where it costs least. On a fast disk the event loop itself waits for it: handing the
batch to a thread and getting the GIL back takes about as long, and halves the batches. As soon as
an fsync is slower, a thread does them, so that reads continue meanwhile.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from tailrace.engine.base import Store, Transaction
from tailrace.engine.changes import Changes
from tailrace.engine.entry import BucketEntry, Entry, StreamEntry
from tailrace.engine.errors import StorageFailed
from tailrace.engine.meters import Meters
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.errors import Refusal
from tailrace.protocol.machine import Verdict
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import AppendRecord, StreamState

__all__ = [
    "CommitBatch", "DurableCallback", "GroupCommit", "Outcome", "Reply", "StreamChange",
    "SyncCallback",
]  # fmt: skip

P = ParamSpec("P")
T = TypeVar("T")

Outcome = tuple[Verdict, StreamState | None] | Refusal
"""The result of a command: its verdict and the state after it, or a refusal."""

Reply = Callable[[Outcome], None]

DurableCallback = Callable[[StorageFailed | None], None]
"""Called with None once a batch is durable, or with the failure that prevents it."""

SyncCallback = Callable[[int, float, float], None]
"""Receives the number of appends of a batch, and when its fsync began and ended."""

SYNC_INLINE_S_MAX: Final = 0.002
"""An fsync that is slower than this moves the next ones to the thread."""
SLOW_DISK_S: Final = 1.0
"""After a slow fsync the thread does them for this long. Then the loop tries one itself."""


class StreamChange:
    """The changes that one batch makes to one stream, in order."""

    __slots__ = ("after", "before", "deleted", "is_visible", "records", "stream")

    def __init__(self, stream: StreamEntry) -> None:
        self.stream = stream
        # Not `durable`: an earlier batch may still be on its way to the disk.
        self.before = stream.state
        self.after = stream.state
        self.records: list[AppendRecord] = []
        self.deleted = False
        # False for a touch, which does not count as a change of the stream.
        self.is_visible = False


class CommitBatch:
    """Changes that share one write and one fsync, and the replies that wait for it."""

    __slots__ = (
        "appends", "buckets", "bytes", "callbacks", "changes", "dirty", "messages", "replies",
        "transaction",
    )  # fmt: skip

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.changes: dict[StreamEntry, StreamChange] = {}
        self.buckets: dict[BucketEntry, BucketState | None] = {}
        self.replies: list[tuple[Reply, Outcome]] = []
        self.callbacks: list[DurableCallback] = []
        self.dirty = False
        # Everything that was appended, even if it was deleted in the same batch: for the metrics.
        self.appends = self.messages = self.bytes = 0

    def count(self, before: Offset, after: Offset) -> None:
        """Count an append, which moved a tail."""
        self.appends += 1
        self.messages += after.message - before.message
        self.bytes += after.byte - before.byte

    def change(self, stream: StreamEntry) -> StreamChange:
        """The change of a stream in this batch, to be added to."""
        self.dirty = True
        stream.pending = self
        change = self.changes.get(stream)
        if change is None:
            change = self.changes[stream] = StreamChange(stream)
        return change


class GroupCommit:
    """Writes batches to the store. Construct and use it on a running event loop."""

    def __init__(
        self, store: Store, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self.failure: BaseException | None = None
        self.open = CommitBatch(store.begin())
        self.syncing: CommitBatch | None = None
        self.changes = Changes()
        self.meters = Meters()
        self.on_sync: SyncCallback | None = None
        """Called for each synced batch, before its replies are sent."""
        self.before_write: Callable[[], None] | None = None
        """Called when the open batch is about to be written, and may add to it."""
        self.batches = 0
        """The number of batches written so far."""
        self._store = store
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        # The disk counts as slow until then. Read by the loop, set by the thread that syncs.
        self._slow_until = 0.0
        # When the last fsync began and ended: that of the batch to be settled next.
        self._synced = (0.0, 0.0)
        self._to_sync: queue.SimpleQueue[CommitBatch | None] = queue.SimpleQueue()
        self._syncer: threading.Thread | None = None
        if store.durable:
            self._syncer = threading.Thread(target=self._sync_loop, name="syncer", daemon=True)
            self._syncer.start()

    def schedule(self) -> None:
        """Commit at the end of this turn of the loop, or after the batch that is being synced."""
        self.open.dirty = True
        if not self._scheduled and self.syncing is None:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def respond(self, reply: Reply, outcome: Outcome, *entries: Entry[Any]) -> None:
        """
        Reply to a command that changes nothing.

        At once, or when the states of the entries that it was decided upon are durable.
        """
        pending: CommitBatch | None = None
        for entry in entries:
            if entry.pending is not None and pending is not self.open:
                pending = entry.pending
        if pending is None:
            reply(outcome)
        else:
            pending.replies.append((reply, outcome))

    def when_durable(self, callback: DurableCallback) -> None:
        """Commit the open batch, and call back once it is durable."""
        self.open.callbacks.append(callback)
        self.schedule()

    def when_idle(self, callback: DurableCallback) -> None:
        """Call back at the first moment when everything that is written is durable."""
        if self.syncing is None:
            callback(None)
        else:
            # Before the next batch is written, however busy the server is.
            self.syncing.callbacks.append(callback)

    def syncing_streams(self, prefix: bytes | tuple[bytes, ...]) -> list[StreamEntry]:
        """Streams whose deletion may be written already, and is not durable yet."""
        if self.syncing is None:
            return []
        return [stream for stream in self.syncing.changes if stream.key.startswith(prefix)]

    async def run_when_idle(self, work: Callable[[], T]) -> T:
        """Run a function on the loop between two batches. Raises StorageFailed if that fails."""
        if self.failure is not None:
            raise StorageFailed from self.failure
        done: asyncio.Future[T] = self._loop.create_future()

        def run(failure: StorageFailed | None) -> None:
            if done.cancelled():
                return
            try:
                if failure is not None:
                    raise failure
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        self.when_idle(run)
        return await done

    def _flush(self) -> None:
        self._scheduled = False
        batch = self.open
        if not batch.dirty or self.syncing is not None or self.failure is not None:
            return
        if self.before_write is not None:
            self._call(self.before_write)
        self.open = CommitBatch(self._store.begin())
        self.syncing = batch
        self.batches += 1
        try:
            self._store.write(batch.transaction)
        except BaseException as error:  # rocksdict raises plain Exception, and panics
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
        """Runs in the syncer's thread. An fsync releases the GIL, so the loop runs meanwhile."""
        call = self._loop.call_soon_threadsafe
        while (batch := self._to_sync.get()) is not None:
            if not self._sync(lambda error: call(partial(self._fail, error))):
                return
            call(self._settle, batch)
            # The thread must not keep the last batch, and its entries, in memory.
            del batch

    def _settle(self, batch: CommitBatch) -> None:
        """The batch is durable: publish it, wake readers, send replies."""
        if self.failure is not None:
            return
        self.syncing = None
        if self.open.dirty:
            self.schedule()
        appends = self.meters.committed(batch)
        if self.on_sync is not None and self._syncer is not None:
            self._call(self.on_sync, appends, *self._synced)
        self._publish(batch)
        for change in batch.changes.values():
            listener = change.stream.listener
            if listener is not None:
                self._call(listener.committed, change)
        for reply, outcome in batch.replies:
            try:
                reply(outcome)
            except Exception as error:
                self._report(error)
        for callback in batch.callbacks:
            self._call(callback, None)

    def _publish(self, batch: CommitBatch) -> None:
        note = self.changes.note
        for stream, change in batch.changes.items():
            stream.durable = change.after
            if stream.pending is batch:
                stream.pending = None
            if change.is_visible and stream.bucket is not None:
                note(stream.bucket.key, stream.key)
        for bucket, state in batch.buckets.items():
            bucket.durable = state
            if bucket.pending is batch:
                bucket.pending = None

    def _fail(self, error: BaseException) -> None:
        """Rule 3. Whether the pending commands are stored is unknown, and the reply says so."""
        if self.failure is not None:
            return
        self.failure = error
        refusal = StorageFailed()
        for batch in (self.syncing, self.open):
            if batch is not None:
                for reply, _ in batch.replies:
                    self._call(reply, refusal)
                for callback in batch.callbacks:
                    self._call(callback, refusal)
                batch.replies.clear()
                batch.callbacks.clear()
        if self._on_failure is not None:
            self._on_failure(error)

    def _call(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call out. An exception there must not keep the others from being called."""
        try:
            function(*args, **kwargs)
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
