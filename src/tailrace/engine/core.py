"""
The engine: commands in, durable outcomes out.

Rule 1: nothing is told to anyone before it is durable. A command is decided in memory at once, upon
states that may run ahead of the disk; its reply waits for the batch that holds its record. A
refusal or a retry that was decided upon a state ahead of the disk waits for that state's batch.

Rule 2: one batch is written or synced at a time. While the disk works on one, commands gather in the
next: whatever arrived together shares one write and one fsync.

Rule 3: a failed write or fsync is final. Everything pending is answered as unknown, the engine takes
no more writes, and the process must end. An fsync is never tried again: after a failed one, the
kernel may have dropped the pages and will report success.

Theory of operation, all on the event loop's thread but for the fsync:

    submit    decide, apply, put into the open batch          many times in one turn of the loop
    _flush    write the open batch, hand it to the syncer     at the end of that turn
    syncer    fsync                                           its own thread; the loop goes on
    _settle   publish states, wake readers, send replies      back on the loop
"""

import asyncio
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from tailrace.engine.base import Due, Store, Transaction
from tailrace.engine.errors import DiskFull, StorageFailed
from tailrace.engine.read import Slice, locate, read_slice
from tailrace.engine.stream import Stream
from tailrace.protocol.errors import Refusal, StreamNotFound
from tailrace.protocol.machine import Effect, Verdict, apply, decide
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import (
    Append,
    Appended,
    Command,
    Create,
    Created,
    Deleted,
    Expire,
    Record,
    StreamState,
    Touched,
)

__all__ = ["Batch", "Committed", "Engine", "Listener", "Outcome", "Reply"]

Outcome = tuple[Verdict, StreamState | None] | Refusal
"""What became of a command: its verdict and the state after it, or why it was refused."""

Reply = Callable[[Outcome], None]

STREAMS_HOT_MAX: Final = 50_000
"""How many streams are kept in memory; the rest is loaded when it is asked for."""
CHECKPOINT_RECORDS: Final = 128
CHECKPOINT_BYTES: Final = 1 << 20
ID_BLOCK: Final = 1024
"""Ids are reserved in blocks, so that a create seldom writes the counter."""
TOUCH_MS: Final = 1000
"""A read restarts a sliding TTL exactly in memory, and on disk at most this often."""
SWEEP_S: Final = 0.5
SWEEP_COUNT_MAX: Final = 512
RECLAIM_COUNT_MAX: Final = 64
COMPACT_BYTES_MIN: Final = 32 << 20
"""Reclaimed records give their room back in bulk; compaction follows after this much."""


class Committed:
    """What one batch did to one stream, in order."""

    __slots__ = ("after", "before", "deleted", "records", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        # Not `durable`: an earlier batch may still be on its way to the disk.
        self.before = stream.state
        self.after = stream.state
        self.records: list[Appended] = []
        self.deleted = False


class Listener(Protocol):
    """Whoever wants to know of commits; called on the loop, after states are published."""

    def committed(self, change: Committed) -> None: ...


class Batch:
    """Commands that share one write and one fsync."""

    __slots__ = ("changes", "replies", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.changes: dict[Stream, Committed] = {}
        self.replies: list[tuple[Reply, Outcome]] = []


class Engine:
    """Streams over a store. Construct and use it on a running event loop."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], int],
        sliding: bool = False,
        streams_hot_max: int = STREAMS_HOT_MAX,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.store = store
        self.sliding = sliding
        self.failure: BaseException | None = None
        self.listener: Listener | None = None
        self._clock = clock
        self._streams: OrderedDict[bytes, Stream] = OrderedDict()
        self._streams_hot_max = streams_hot_max
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._open = Batch(store.begin())
        self._open_dirty = False
        self._syncing: Batch | None = None
        self._scheduled = False
        self._next_id = store.next_id
        self._reserved = store.next_id
        self._reclaimed_bytes = 0
        self._compaction: threading.Thread | None = None
        self._closed = False
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        self._to_sync: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._syncer: threading.Thread | None = None
        if store.durable:
            self._syncer = threading.Thread(target=self._sync_loop, name="syncer", daemon=True)
            self._syncer.start()

    # -- reads -------------------------------------------------------------------------------

    def find(self, key: bytes) -> Stream:
        """
        The stream of this name as readers may see it: its `durable` state is not None.

        Raises:
            StreamNotFound: It was never created, was deleted, or has expired.
        """
        stream = self._stream(key)
        if stream.durable is None:
            if stream.pending is None and stream.live is None:
                # Names that do not exist must not push streams that do out of memory.
                del self._streams[key]
            raise StreamNotFound
        if self._expired(stream, stream.durable, self._clock()):
            raise StreamNotFound
        return stream

    def locate(self, stream: Stream, offset: Offset) -> None:
        """Check that an offset lies on a message boundary that is retained and not past the tail."""
        assert stream.durable is not None
        locate(self.store, stream.durable, offset)

    def read(self, stream: Stream, start: Offset, bytes_max: int) -> Slice:
        """Whole messages from an offset on, up to a size: at least one, if there is one."""
        assert stream.durable is not None
        return read_slice(self.store, stream.durable, start, bytes_max)

    def touch(self, stream: Stream) -> None:
        """A read: where the TTL slides, its window starts again now."""
        state = stream.state
        if not self.sliding or state is None or state.ttl_s is None:
            return
        now = self._clock()
        stream.touched_at = now
        if now - state.touched_at >= TOUCH_MS and self.failure is None:
            self._record(stream, Touched(now))
            self._schedule()

    def remaining_ms(self, stream: Stream) -> int | None:
        """How long the stream still lives, if it ends at all."""
        assert stream.durable is not None
        deadline = self._deadline(stream, stream.durable)
        return None if deadline is None else max(0, deadline - self._clock())

    # -- commands ----------------------------------------------------------------------------

    def new_id(self) -> int:
        """The internal id for a `Create`; it is taken only if that is accepted."""
        return self._next_id

    def submit(self, key: bytes, command: Command, reply: Reply) -> None:
        """Decide a command now; `reply` is called once the outcome is durable, never before."""
        if self.failure is not None:
            reply(StorageFailed())
            return
        stream = self._stream(key)
        now = self._clock()
        try:
            if stream.state is not None and self._expired(stream, stream.state, now):
                self._expire(stream, now)
            verdict = decide(stream.state, command, now)
            if verdict.record is None:
                self._answer(stream, reply, (verdict, stream.state))
                return
            self._check_room(command)
        except Refusal as refusal:
            self._answer(stream, reply, refusal)
            return
        self._record(stream, verdict.record)
        self._open.replies.append((reply, (verdict, stream.state)))
        self._schedule()

    def _check_room(self, command: Command) -> None:
        if type(command) is Append or type(command) is Create:
            room = self.store.free_bytes()
            if room is not None and room < len(command.body):
                raise DiskFull

    def _answer(self, stream: Stream, reply: Reply, outcome: Outcome) -> None:
        """Reply to what changes nothing: at once, unless it was decided ahead of the disk."""
        if stream.pending is None:
            reply(outcome)
        else:
            stream.pending.replies.append((reply, outcome))

    def _record(self, stream: Stream, record: Record) -> None:
        """Apply a record and put it into the open batch."""
        batch = self._open
        change = batch.changes.get(stream)
        if change is None:
            change = batch.changes[stream] = Committed(stream)
        before = stream.state
        after = apply(before, record)
        stream.state = change.after = after
        stream.pending = batch
        self._open_dirty = True
        if type(record) is Appended:
            assert before is not None and after is not None
            change.records.append(record)
            batch.transaction.append(before.id, before.tail, record)
            self._grown(stream, after, record, batch)
        elif type(record) is Created:
            assert after is not None
            self._created(stream, after, record, change, batch)
        elif type(record) is Deleted:
            assert before is not None
            change.deleted = True
            change.records.clear()
            stream.dirty_records = stream.dirty_bytes = 0
            batch.transaction.delete(stream.key, before)
        else:
            assert after is not None
            batch.transaction.checkpoint(stream.key, after)

    def _created(
        self, stream: Stream, after: StreamState, record: Created, change: Committed, batch: Batch
    ) -> None:
        self._next_id = record.id + 1
        if self._next_id > self._reserved:
            self._reserved = record.id + ID_BLOCK
            batch.transaction.reserve_ids(self._reserved)
        batch.transaction.create(stream.key, after)
        if record.content is not None and record.content.payload:
            change.records.append(record.content)
            batch.transaction.append(after.id, Offset(0, 0), record.content)
        stream.touched_at = record.time
        deadline = after.deadline(self.sliding)
        if deadline is not None:
            batch.transaction.schedule(Due(deadline, after.id, stream.key))

    def _grown(self, stream: Stream, state: StreamState, record: Appended, batch: Batch) -> None:
        stream.dirty_records += 1
        stream.dirty_bytes += len(record.payload)
        if stream.dirty_records >= CHECKPOINT_RECORDS + len(state.producers) or (
            stream.dirty_bytes >= CHECKPOINT_BYTES
        ):
            batch.transaction.checkpoint(stream.key, state)
            stream.dirty_records = stream.dirty_bytes = 0

    # -- group commit ------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Commit at the end of this turn of the loop, or when the batch under way is done."""
        if not self._scheduled and self._syncing is None:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if not self._open_dirty or self._syncing is not None or self.failure is not None:
            return
        batch = self._open
        self._open = Batch(self.store.begin())
        self._open_dirty = False
        self._syncing = batch
        try:
            self.store.write(batch.transaction)
        except Exception as error:  # rocksdict raises plain Exception
            self._fail(error)
            return
        if self._syncer is None:
            self._settle(batch)
        else:
            self._to_sync.put(batch)

    def _sync_loop(self) -> None:
        """The syncer's thread: the fsync releases the GIL, so the loop runs on beside it."""
        while (batch := self._to_sync.get()) is not None:
            try:
                self.store.sync()
            except BaseException as error:
                self._loop.call_soon_threadsafe(self._fail, error)
                return
            self._loop.call_soon_threadsafe(self._settle, batch)

    def _settle(self, batch: Batch) -> None:
        """The batch is durable: publish it, wake readers, answer."""
        if self.failure is not None:
            return
        self._syncing = None
        # The next batch goes to the disk before anyone is told of this one: it need not wait.
        if self._open_dirty:
            self._flush()
        for stream, change in batch.changes.items():
            stream.durable = change.after
            if stream.pending is batch:
                stream.pending = None
        listener = self.listener
        if listener is not None:
            for change in batch.changes.values():
                if change.stream.live is not None:
                    listener.committed(change)
        for reply, outcome in batch.replies:
            reply(outcome)
        if len(self._streams) > self._streams_hot_max:
            self._evict()

    def _fail(self, error: BaseException) -> None:
        """Rule 3. Whether the pending commands are stored is unknown, and so they are told."""
        if self.failure is not None:
            return
        self.failure = error
        refusal: Refusal = DiskFull() if "No space left" in str(error) else StorageFailed()
        for batch in (self._syncing, self._open):
            if batch is not None:
                for reply, _ in batch.replies:
                    reply(refusal)
                batch.replies.clear()
        if self._on_failure is not None:
            self._on_failure(error)

    # -- what is hot -------------------------------------------------------------------------

    def _stream(self, key: bytes) -> Stream:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream(key, self.store.load(key))
            if len(self._streams) > self._streams_hot_max and self._syncing is None:
                self._evict()
        else:
            self._streams.move_to_end(key)
        return stream

    def _evict(self) -> None:
        """Forget the streams that were not used for the longest time and that nobody needs."""
        excess = len(self._streams) - self._streams_hot_max
        for key in list(self._streams)[: excess + excess // 2]:
            stream = self._streams[key]
            if excess <= 0:
                return
            if stream.pending is not None or stream.live is not None:
                # In use: to the young end, so that the next round looks elsewhere.
                self._streams.move_to_end(key)
                continue
            state = stream.state
            if state is not None and self.failure is None:
                if self.sliding and stream.touched_at > state.touched_at:
                    state = apply(state, Touched(stream.touched_at))
                    assert state is not None
                    stream.dirty_records += 1
                if stream.dirty_records:
                    self._open.transaction.checkpoint(key, state)
                    self._open_dirty = True
            del self._streams[key]
            excess -= 1

    # -- the end of streams ------------------------------------------------------------------

    def _deadline(self, stream: Stream, state: StreamState) -> int | None:
        if self.sliding and state.ttl_s is not None:
            return max(stream.touched_at, state.touched_at) + state.ttl_s * 1000
        return state.deadline(self.sliding)

    def _expired(self, stream: Stream, state: StreamState, now: int) -> bool:
        if state.ttl_s is None and state.expires_at is None:
            return False
        deadline = self._deadline(stream, state)
        return deadline is not None and now >= deadline

    def _expire(self, stream: Stream, now: int) -> None:
        """End a stream whose time is over, as a record like any other."""
        assert stream.state is not None
        if stream.touched_at > stream.state.touched_at:
            self._record(stream, Touched(stream.touched_at))
        verdict = decide(stream.state, Expire(self.sliding), now)
        if verdict.effect is Effect.DELETED:
            assert verdict.record is not None
            self._record(stream, verdict.record)
            self._schedule()

    def _sweep(self) -> None:
        """Every half second, in bounded steps: end what is over, reclaim what was deleted."""
        if self.failure is not None or self._closed:
            return
        more = self._sweep_expired()
        if self._syncing is None:
            more = self._reclaim() or more
        self._sweeper = self._loop.call_later(0.01 if more else SWEEP_S, self._sweep)

    def _sweep_expired(self) -> bool:
        now = self._clock()
        entries = self.store.due(now, SWEEP_COUNT_MAX)
        for due in entries:
            stream = self._stream(due.key)
            state = stream.state
            if state is not None and state.id == due.id:
                if self._expired(stream, state, now):
                    self._expire(stream, now)
                else:
                    deadline = self._deadline(stream, state)
                    assert deadline is not None
                    self._open.transaction.schedule(Due(deadline, due.id, due.key))
            self._open.transaction.unschedule(due)
            self._open_dirty = True
        if entries:
            # Written now: the next look at the index must not find the same entries.
            self._schedule()
        return len(entries) == SWEEP_COUNT_MAX

    def _reclaim(self) -> bool:
        garbage = self.store.garbage(RECLAIM_COUNT_MAX)
        for entry in garbage:
            self._open.transaction.reclaim(entry)
            self._open_dirty = True
            self._reclaimed_bytes += entry.bytes
        if garbage:
            self._schedule()
        elif self._reclaimed_bytes >= COMPACT_BYTES_MIN and self._compaction is None:
            self._reclaimed_bytes = 0
            self._compaction = threading.Thread(target=self._compact, name="compaction")
            self._compaction.start()
        return len(garbage) == RECLAIM_COUNT_MAX

    def _compact(self) -> None:
        try:
            self.store.compact()
        finally:
            self._compaction = None

    # -- the end of the engine ---------------------------------------------------------------

    async def close(self) -> None:
        """Commit what is pending, then close the store."""
        self._closed = True
        self._sweeper.cancel()
        while self.failure is None and (self._syncing is not None or self._open_dirty):
            self._schedule()
            await asyncio.sleep(0.001)
        if self._syncer is not None:
            self._to_sync.put(None)
            await asyncio.to_thread(self._syncer.join)
        if (compaction := self._compaction) is not None:
            self.store.interrupt()
            await asyncio.to_thread(compaction.join)
        self.store.close()
