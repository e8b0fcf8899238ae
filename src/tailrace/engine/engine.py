"""
The engine: commands in, durable outcomes out.

A command is decided in memory at once, upon states that may run ahead of the disk; its reply waits
for the batch that holds its record. A refusal or a retry that was decided upon a state ahead of the
disk waits for that state's batch too: nobody learns of a closure that a crash could undo.

Memory is bounded by what is hot, not by how many streams exist: states live in an LRU, and loading
one is its checkpoint and the records after it.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tailrace.engine.base import Due, Store
from tailrace.engine.buckets import BucketEntry, Buckets
from tailrace.engine.commit import CommitBatch, GroupCommit, Listener, Outcome, Reply, StreamChange
from tailrace.engine.entry import StreamEntry
from tailrace.engine.errors import DiskFull, StorageDamaged, StorageFailed
from tailrace.engine.lru import LruCache
from tailrace.engine.pins import Pins
from tailrace.engine.quota import GrowthRefused, Quota, check_quota
from tailrace.engine.read import Slice, locate, read_slice
from tailrace.engine.sweep import Sweeper
from tailrace.protocol.bucket import stream_bytes
from tailrace.protocol.errors import BucketNotFound, Refusal, StreamNotFound
from tailrace.protocol.machine import Effect, apply, decide
from tailrace.protocol.names import NO_BUCKET, bucket_of
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import (
    Append,
    AppendRecord,
    Command,
    Create,
    CreateRecord,
    DeleteRecord,
    Expire,
    Publish,
    PublishRecord,
    Record,
    SnapshotInfo,
    StreamState,
    TouchRecord,
)

__all__ = ["CommitBatch", "StreamChange", "Engine", "Listener", "Outcome", "Reply"]

STREAMS_HOT_MAX: Final = 131_072
"""How many streams are kept in memory; the rest is loaded when it is asked for."""
CHECKPOINT_RECORDS: Final = 128
CHECKPOINT_BYTES: Final = 1 << 20
ID_BLOCK: Final = 1024
"""Ids are reserved in blocks, so that a create seldom writes the counter."""
RECORD_BYTES_ABOUT: Final = 256
"""What an append takes beyond its body."""
BLOB_THREADS: Final = 4
"""Snapshots too large for the log are written and read by threads, beside everything else."""
TOUCH_MS: Final = 1000
"""A read restarts a sliding TTL exactly in memory, and on disk at most this often."""


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
        self.clock = clock
        self.commit = GroupCommit(store, on_failure)
        self.buckets = Buckets(self)
        self.pins = Pins()
        self.quota: Quota | None = None
        self.blob_threads = ThreadPoolExecutor(BLOB_THREADS, thread_name_prefix="blob")
        self._streams: LruCache[StreamEntry] = LruCache(streams_hot_max, self._forgettable)
        self._next_id = store.next_id
        self._reserved = store.next_id
        self._room = 0
        self._sweeper = Sweeper(self)

    @property
    def failure(self) -> BaseException | None:
        """Why nothing is written any more, if so."""
        return self.commit.failure

    # -- reads -------------------------------------------------------------------------------

    def find(self, key: bytes) -> StreamEntry:
        """
        The stream of this name as readers may see it: its `durable` state is not None.

        Raises:
            StreamNotFound: It was never created, was deleted, or has expired.
            BucketNotFound: Nor is there a bucket that it could be in.
        """
        stream = self.stream(key)
        state = stream.durable
        if state is None or self.expired(stream, state, self.clock()):
            raise self._not_found(key)
        return stream

    def _not_found(self, key: bytes) -> Refusal:
        """X§1.6: a missing bucket is 404 too, and worth saying."""
        bucket = bucket_of(key)
        return BucketNotFound() if bucket and not self.buckets.exists(bucket) else StreamNotFound()

    def peek(self, key: bytes) -> StreamState | None:
        """A stream as readers may see it, without making it hot."""
        stream = self._streams.peek(key) or StreamEntry(key, self.store.load(key))
        state = stream.durable
        return None if state is None or self.expired(stream, state, self.clock()) else state

    def locate(self, stream: StreamEntry, offset: Offset) -> None:
        """Check that an offset is a message boundary, retained and not past the tail."""
        assert stream.durable is not None
        locate(self.store, stream.durable, offset)

    def read(self, stream: StreamEntry, start: Offset, bytes_max: int) -> Slice:
        """Whole messages from an offset on, up to a size: at least one, if there is one."""
        assert stream.durable is not None
        return read_slice(self.store, stream.durable, start, bytes_max)

    def touch(self, stream: StreamEntry) -> None:
        """A read: where the TTL slides, its window starts again now."""
        state = stream.state
        if not self.sliding or state is None or state.ttl_s is None:
            return
        now = self.clock()
        if self.expired(stream, state, now):
            return
        stream.touched_at = now
        if now - state.touched_at >= TOUCH_MS and self.failure is None:
            self.record(stream, TouchRecord(now))
            self.commit.schedule()

    def remaining_ms(self, stream: StreamEntry) -> int | None:
        """How long the stream still lives, if it ends at all."""
        assert stream.durable is not None
        deadline = self.deadline(stream, stream.durable)
        return None if deadline is None else max(0, deadline - self.clock())

    # -- commands ----------------------------------------------------------------------------

    def new_id(self) -> int:
        """The internal id for a `Create`; it is taken only if that is accepted."""
        return self._next_id

    def take_id(self) -> int:
        """An internal id for what is stored before the record that refers to it."""
        taken = self._next_id
        self._use_id(taken)
        return taken

    def _use_id(self, used: int) -> None:
        self._next_id = max(self._next_id, used + 1)
        if self._next_id > self._reserved:
            # Whatever record will refer to it comes in this batch or in a later one.
            self._reserved = self._next_id + ID_BLOCK - 1
            self.commit.open.transaction.reserve_ids(self._reserved)
            self.commit.schedule()

    def submit(self, key: bytes, command: Command, reply: Reply) -> None:
        """Decide a command now; `reply` is called once the outcome is durable, never before."""
        commit = self.commit
        if commit.failure is not None:
            reply(StorageFailed())
            return
        stream = self.stream(key)
        now = self.clock()
        try:
            state = stream.state
            if state is not None and self.expired(stream, state, now):
                self.expire(stream, now)
            if type(command) is Create and not self.buckets.exists_ahead(key, reply):
                # X§1.2: creating a stream MUST NOT create its bucket.
                return
            verdict = decide(stream.state, command, now)
            if verdict.record is None:
                self._answer(stream, reply, (verdict, stream.state))
                return
            size = _stored_bytes(command)
            if size is not None:
                self.check_room(size)
            if self.quota is not None and key[:1] != NO_BUCKET:
                # The last that may refuse: what it counts is spent.
                check_quota(self, self.quota, stream, verdict.record, now)
            if size is not None:
                self.take_room(size)
        except StreamNotFound as refusal:
            if self.buckets.exists_ahead(key, reply):
                self._answer(stream, reply, refusal)
            return
        except GrowthRefused as refused:
            self._answer(stream, reply, refused.refusal, refused.bucket.pending)
            return
        except Refusal as refusal:
            self._answer(stream, reply, refusal)
            return
        self.record(stream, verdict.record)
        commit.open.replies.append((reply, (verdict, stream.state)))
        commit.schedule()

    def check_snapshot(self, stream: StreamEntry, offset: Offset, size: int) -> None:
        """Raises what the quota will, if a snapshot of this size came: before it is sent."""
        if self.quota is not None and stream.state is not None and bucket_of(stream.key):
            record = PublishRecord(SnapshotInfo(offset, 0, size, "", b"", inline=False), None)
            try:
                check_quota(self, self.quota, stream, record, self.clock())
            except GrowthRefused as refused:
                raise refused.refusal from None

    def check_room(self, size: int) -> None:
        """Raises DiskFull if there is no room for so much."""
        if size > self._room:
            self.measure_room()
            if size > self._room:
                raise DiskFull

    def take_room(self, size: int) -> None:
        """
        Count what is about to be stored.

        Raises:
            DiskFull: There is no room for it.
        """
        self.check_room(size)
        # Once in the log, and once more when it is flushed.
        self._room -= 2 * size + RECORD_BYTES_ABOUT

    @property
    def full(self) -> bool:
        """Whether appends are refused for want of room."""
        return self._room <= 0

    def measure_room(self) -> None:
        """Ask the disk: at every sweep, for others use it too, and when it seems to be full."""
        free = self.store.free_bytes()
        self._room = sys.maxsize if free is None else free

    def _answer(
        self, stream: StreamEntry, reply: Reply, outcome: Outcome, bucket: CommitBatch | None = None
    ) -> None:
        """
        Reply to what changes nothing: at once, unless it was decided ahead of the disk.

        `bucket`: the batch of the bucket, if that was looked at too. The later of both counts.
        """
        pending = stream.pending
        if bucket is not None and pending is not self.commit.open:
            pending = bucket
        if pending is None:
            reply(outcome)
        else:
            pending.replies.append((reply, outcome))

    def record(self, stream: StreamEntry, record: Record) -> None:
        """Apply a record and put it into the open batch; the caller schedules the commit."""
        batch = self.commit.open
        bucket: BucketEntry | None = None
        if (
            type(record) is not TouchRecord
            and stream.key[:1] != NO_BUCKET
            and (bucket_id := bucket_of(stream.key))
        ):
            # Before anything changes, since loading it can fail.
            bucket = self.buckets.bucket(bucket_id)
            if bucket.state is None:
                raise StorageDamaged(f"the bucket {bucket_id.decode()} was created")
        change = batch.change(stream)
        before = stream.state
        after = apply(before, record)
        stream.state = change.after = after
        if type(record) is AppendRecord:
            assert before is not None
            assert after is not None
            change.is_news = True
            change.records.append(record)
            batch.count(before.tail, after.tail)
            batch.transaction.append(before.id, before.tail, record)
            self._grown(stream, after, record, batch)
            if bucket is not None:
                if bucket.pending is batch and bucket.state is not None:
                    bucket.state.bytes += len(record.payload)
                else:
                    self.buckets.grow(bucket, 0, len(record.payload))
        elif type(record) is CreateRecord:
            assert after is not None
            change.is_news = True
            self._streams.keep(stream.key, stream)
            self._created(stream, after, record, change, batch)
            if bucket is not None:
                self.buckets.grow(bucket, 1, stream_bytes(after))
        elif type(record) is DeleteRecord:
            assert before is not None
            change.is_news = change.deleted = True
            change.records.clear()
            stream.dirty_records = stream.dirty_bytes = 0
            batch.transaction.delete(stream.key, before)
            if bucket is not None:
                self.buckets.grow(bucket, -1, -stream_bytes(before))
        elif type(record) is PublishRecord:
            assert before is not None
            assert after is not None
            change.is_news = True
            batch.transaction.publish(stream.key, before, after, record.content)
            stream.dirty_records = stream.dirty_bytes = 0
            if bucket is not None:
                self.buckets.grow(bucket, 0, stream_bytes(after) - stream_bytes(before))
        else:
            assert after is not None
            batch.transaction.checkpoint(stream.key, after)
            stream.dirty_records = stream.dirty_bytes = 0

    def _created(
        self,
        stream: StreamEntry,
        after: StreamState,
        record: CreateRecord,
        change: StreamChange,
        batch: CommitBatch,
    ) -> None:
        self._use_id(record.id)
        batch.transaction.create(stream.key, after)
        if record.content is not None and record.content.payload:
            change.records.append(record.content)
            batch.count(START, after.tail)
            batch.transaction.append(after.id, START, record.content)
        stream.touched_at = record.time
        deadline = after.deadline(self.sliding)
        if deadline is not None:
            batch.transaction.schedule(Due(max(0, deadline), after.id, stream.key))

    def _grown(
        self, stream: StreamEntry, state: StreamState, record: AppendRecord, batch: CommitBatch
    ) -> None:
        stream.dirty_records += 1
        stream.dirty_bytes += len(record.payload)
        if stream.dirty_records < CHECKPOINT_RECORDS and stream.dirty_bytes < CHECKPOINT_BYTES:
            return
        # A checkpoint is as large as its producers are many: then it must come less often.
        if stream.dirty_records >= len(state.producers) or stream.dirty_bytes >= CHECKPOINT_BYTES:
            batch.transaction.checkpoint(stream.key, state)
            stream.dirty_records = stream.dirty_bytes = 0

    # -- what is hot -------------------------------------------------------------------------

    @property
    def hot(self) -> LruCache[StreamEntry]:
        """The streams in memory, for whoever counts them."""
        return self._streams

    def stream(self, key: bytes) -> StreamEntry:
        """The stream of this name, loaded if need be; it may not exist."""
        stream = self._streams.get(key)
        if stream is not None:
            return stream
        stream = StreamEntry(key, self.store.load(key))
        if stream.state is not None:
            # What was replayed just now must not be replayed, with more, the next time.
            stream.dirty_bytes = CHECKPOINT_BYTES
            # Names that do not exist must not push streams that do out of memory.
            self._streams.keep(key, stream)
        return stream

    def _forgettable(self, stream: StreamEntry) -> bool:
        if stream.pending is not None or stream.live is not None:
            return False
        state = stream.state
        if state is None or self.failure is not None:
            return True
        if self.sliding and stream.touched_at > state.touched_at:
            # Only memory knows of this read: it is written down first.
            self.record(stream, TouchRecord(stream.touched_at))
            self.commit.schedule()
            return False
        if stream.dirty_records:
            self.commit.open.transaction.checkpoint(stream.key, state)
            self.commit.schedule()
        return True

    # -- the end of streams ------------------------------------------------------------------

    def deadline(self, stream: StreamEntry, state: StreamState) -> int | None:
        """When a stream ends; where the TTL slides, reads count that are not written down yet."""
        if self.sliding and state.ttl_s is not None:
            return max(stream.touched_at, state.touched_at) + state.ttl_s * 1000
        return state.deadline(self.sliding)

    def expired(self, stream: StreamEntry, state: StreamState, now: int) -> bool:
        if state.ttl_s is None and state.expires_at is None:
            return False
        deadline = self.deadline(stream, state)
        return deadline is not None and now >= deadline

    def expire(self, stream: StreamEntry, now: int) -> None:
        """End a stream whose time is over, as a record like any other."""
        assert stream.state is not None
        if stream.touched_at > stream.state.touched_at:
            self.record(stream, TouchRecord(stream.touched_at))
        verdict = decide(stream.state, Expire(self.sliding), now)
        if verdict.effect is Effect.DELETED:
            assert verdict.record is not None
            self.record(stream, verdict.record)
        self.commit.schedule()

    async def close(self) -> None:
        """Commit what is pending, then close the store."""
        self._sweeper.stop()
        await self.commit.close()
        await self._sweeper.close()
        self.blob_threads.shutdown()
        try:
            self.store.close()
        except Exception:  # rocksdict raises plain Exception
            # After a failure there is nothing left to save: what was acknowledged is on disk.
            if self.failure is None:
                raise


def _stored_bytes(command: Command) -> int | None:
    """What a command brings to be stored, if that is what it is for."""
    if type(command) is Append or type(command) is Create:
        return len(command.body)
    if type(command) is Publish and command.content is not None:
        return len(command.content)
    return None
