"""
The engine: commands in, durable outcomes out.

A command is decided in memory at once, upon states that may run ahead of the disk. Its reply waits
for the batch that holds its record. A refusal or a retry that was decided upon a state ahead of the
disk waits for that state's batch too: no client learns of a closure that a crash could undo.

Memory is bounded by what is in use, not by how many streams exist: entries are in an LRU cache, and
loading a stream is its checkpoint and the records after it.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from msgspec.structs import replace

from tailrace.engine.base import Due, Store
from tailrace.engine.buckets import Buckets
from tailrace.engine.commit import CommitBatch, GroupCommit, Outcome, Reply, StreamChange
from tailrace.engine.entry import BucketEntry, StreamEntry
from tailrace.engine.errors import DiskFull, StorageDamaged, StorageFailed
from tailrace.engine.forks import Forks
from tailrace.engine.listing import Listing
from tailrace.engine.lru import LruCache
from tailrace.engine.pins import Pins
from tailrace.engine.quota import Quota, check_quota
from tailrace.engine.read import Slice, locate, read_slice
from tailrace.engine.search import align, end_within
from tailrace.engine.subscriptions.subscriptions import Subscriptions
from tailrace.engine.sweep import Sweeper
from tailrace.protocol.bucket import admit_stream, growth
from tailrace.protocol.errors import BucketNotFound, Refusal, StreamNotFound, StreamSoftDeleted
from tailrace.protocol.machine import apply, decide
from tailrace.protocol.names import NO_BUCKET, bucket_of
from tailrace.protocol.offset import Offset
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
    ReferenceRecord,
    SnapshotInfo,
    SoftDeleteRecord,
    StreamState,
    Touch,
    TouchRecord,
)

__all__ = ["CommitBatch", "Engine", "Outcome", "Reply", "StreamChange"]

STREAMS_CACHED_MAX: Final = 131_072
"""The number of streams in memory; others are loaded when they are needed."""
CHECKPOINT_RECORDS: Final = 128
CHECKPOINT_BYTES: Final = 1 << 20
ID_BLOCK: Final = 1024
"""Ids are reserved in blocks, so that a create seldom writes the counter."""
RECORD_BYTES_ABOUT: Final = 256
"""What an append takes on disk beyond its body."""
BLOB_THREADS: Final = 4
"""Threads that write and read snapshots that are too large for the log."""
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
        streams_cached_max: int = STREAMS_CACHED_MAX,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.store = store
        self.sliding = sliding
        self.clock = clock
        self.commit = GroupCommit(store, on_failure)
        self.buckets = Buckets(self)
        self.forks = Forks(self)
        self.listing = Listing(self)
        self.pins = Pins()
        self.quota: Quota | None = None
        self.blob_threads = ThreadPoolExecutor(BLOB_THREADS, thread_name_prefix="blob")
        self.stream_cache: LruCache[StreamEntry] = LruCache(
            streams_cached_max, self._save_before_eviction
        )
        self._next_id = self._reserved = store.next_id
        self._room = 0
        self.subscriptions = Subscriptions(self)
        self.commit.before_write = self.subscriptions.wakes.write_events
        self._subscription_records = self.subscriptions.records
        self._sweeper = Sweeper(self)

    @property
    def failure(self) -> BaseException | None:
        """Why nothing is written any more, if so."""
        return self.commit.failure

    # -- reads -------------------------------------------------------------------------------

    def find(self, key: bytes) -> StreamEntry:
        """
        The stream of this name as readers see it: its `durable` state is not None.

        Raises:
            StreamNotFound: It was never created, was deleted, or has expired.
            StreamSoftDeleted: It was deleted, or has expired, and is kept for its forks.
            BucketNotFound: Its bucket does not exist.
        """
        stream = self.stream(key)
        state = stream.durable
        if state is None or state.deleted or self.expired(stream, state, self.clock()):
            if state is not None and (state.deleted or state.forks):
                raise StreamSoftDeleted
            # X§1.6: a missing bucket is 404 too, and says so.
            bucket = bucket_of(key)
            raise StreamNotFound if not bucket or self.buckets.exists(bucket) else BucketNotFound
        return stream

    def peek(self, key: bytes) -> StreamState | None:
        """The state of a stream as readers see it, without caching it."""
        stream = self.stream_cache.peek(key) or StreamEntry(key, self.store.load(key))
        state = stream.readable
        return None if state is None or self.expired(stream, state, self.clock()) else state

    def locate(self, stream: StreamEntry, offset: Offset) -> None:
        """Check that an offset is a message boundary, retained and not past the tail."""
        assert stream.durable is not None
        locate(self.store, stream.durable, offset)

    def read(self, stream: StreamEntry, start: Offset, bytes_max: int) -> Slice:
        """Whole messages from an offset on, up to a size: at least one, if there is one."""
        assert stream.durable is not None
        return read_slice(self.store, stream.durable, start, bytes_max)

    def align(self, stream: StreamEntry, offset: Offset) -> Offset:
        """The boundary at or before an offset that a client computed; see `search.align`."""
        assert stream.durable is not None
        return align(self.store, stream.durable, offset)

    def end_within(self, stream: StreamEntry, start: Offset, bytes_max: int) -> Offset:
        """Where a read of up to a number of bytes ends; see `search.end_within`."""
        assert stream.durable is not None
        return end_within(self.store, stream.durable, start, bytes_max)

    def touch(self, stream: StreamEntry) -> None:
        """Note a read: a sliding TTL starts again."""
        state = stream.state
        if not self.sliding or state is None or state.ttl_s is None or state.deleted:
            return
        now = self.clock()
        if self.expired(stream, state, now):
            return
        stream.touched_at = now
        if now - state.touched_at >= TOUCH_MS and self.failure is None:
            self._decide(stream, Touch(), now)

    def deadline(self, stream: StreamEntry, state: StreamState) -> int | None:
        """When a stream expires, if it does."""
        return state.deadline(self.sliding, stream.touched_at)

    def expired(self, stream: StreamEntry, state: StreamState, now: int) -> bool:
        if state.ttl_s is None and state.expires_at is None:
            return False
        return state.expired(now, self.sliding, stream.touched_at)

    def remaining_ms(self, stream: StreamEntry) -> int | None:
        """The time until the stream expires, if it does."""
        assert stream.durable is not None
        deadline = self.deadline(stream, stream.durable)
        return None if deadline is None else max(0, deadline - self.clock())

    # -- commands ----------------------------------------------------------------------------

    def new_id(self) -> int:
        """The internal id for a `Create`. It is used up only if the command is accepted."""
        return self._next_id

    def take_id(self) -> int:
        """An internal id for something that is stored before the record that refers to it."""
        taken = self._next_id
        self._use_id(taken)
        return taken

    def _use_id(self, used: int) -> None:
        self._next_id = max(self._next_id, used + 1)
        if self._next_id > self._reserved:
            # The record that refers to the id comes in this batch or in a later one.
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
        size = _stored_bytes(command)
        decided_upon: tuple[StreamEntry | BucketEntry, ...] = (stream,)
        try:
            state = stream.state
            if state is not None and (state.ttl_s is not None or state.expires_at is not None):
                self.expire(stream, now)
            if type(command) is Create:
                if (bucket := self._bucket(stream)) is not None:
                    admit_stream(bucket.state)
                if command.fork is not None:
                    decided_upon = (stream, self.stream(command.fork.key))
                    prepared = self.forks.prepare(stream, command, now)
                    if prepared is None:
                        commit.when_durable(partial(self._submit_again, key, command, reply))
                        return
                    command = prepared
            verdict = decide(stream.state, command, now)
            record = verdict.record
            if record is None:
                commit.respond(reply, (verdict, stream.state), *decided_upon)
                return
            if size is not None:
                self.check_room(size)
            if self.quota is not None and (bucket := self._bucket(stream)) is not None:
                decided_upon = (*decided_upon, bucket)
                # The last check, because it uses up what it allows.
                check_quota(self, self.quota, stream, bucket, record, now)
        except (BucketNotFound, StreamNotFound):
            bucket = self._bucket(stream)
            if bucket is not None and bucket.state is None:
                commit.respond(reply, BucketNotFound(), bucket)
            else:
                commit.respond(reply, StreamNotFound(), stream)
            return
        except Refusal as refusal:
            commit.respond(reply, refusal, *decided_upon)
            return
        if size is not None:
            self._use_room(size)
        self._record(stream, record)
        commit.open.replies.append((reply, (verdict, stream.state)))
        commit.schedule()

    def _submit_again(
        self, key: bytes, command: Create, reply: Reply, failure: StorageFailed | None
    ) -> None:
        """What a fork has to read of its source is durable now."""
        if failure is not None:
            reply(failure)
            return
        try:
            # Its id may have been used meanwhile.
            self.submit(key, replace(command, id=self.new_id()), reply)
        except Exception as error:
            # Nothing else would tell the client.
            reply(StorageDamaged(str(error)))
            raise

    def _decide(self, stream: StreamEntry, command: Command, now: int) -> bool:
        """Decide a command of the engine's own; returns whether it changed the stream."""
        verdict = decide(stream.state, command, now)
        if verdict.record is None:
            return False
        self._record(stream, verdict.record)
        self.commit.schedule()
        return True

    def append(self, key: bytes, body: bytes) -> None:
        """
        Append a message of the engine's own to the open batch, in the stream's content type.

        Raises:
            Refusal: The stream does not exist, has expired or is closed.
        """
        stream = self.stream(key)
        now = self.clock()
        self.expire(stream, now)
        content_type = None if stream.state is None else stream.state.content_type
        self._decide(stream, Append(body, content_type), now)

    def expire(self, stream: StreamEntry, now: int) -> bool:
        """Delete a stream if it has expired; returns whether it has."""
        return self._decide(stream, Expire(self.sliding, stream.touched_at), now)

    def check_snapshot(self, stream: StreamEntry, offset: Offset, size: int) -> None:
        """Check the quota for a snapshot of this size, before it is uploaded."""
        bucket = self._bucket(stream)
        if self.quota is not None and stream.state is not None and bucket is not None:
            record = PublishRecord(SnapshotInfo(offset, 0, size, "", b"", inline=False), None)
            check_quota(self, self.quota, stream, bucket, record, self.clock())

    # -- disk room ---------------------------------------------------------------------------

    def check_room(self, size: int) -> None:
        """Raises DiskFull if there is no room for this many bytes."""
        if size > self._room:
            self.measure_room()
            if size > self._room:
                raise DiskFull

    def take_room(self, size: int) -> None:
        """Count what is about to be stored. Raises DiskFull if there is no room for it."""
        self.check_room(size)
        self._use_room(size)

    def _use_room(self, size: int) -> None:
        # Once in the log, and once more when it is flushed.
        self._room -= 2 * size + RECORD_BYTES_ABOUT

    @property
    def full(self) -> bool:
        """Whether appends are refused because the disk is full."""
        return self._room <= 0

    def measure_room(self) -> None:
        """Ask the disk: at every sweep, since others use it too, and when it seems to be full."""
        free = self.store.free_bytes()
        self._room = sys.maxsize if free is None else free

    # -- records -----------------------------------------------------------------------------

    def _bucket(self, stream: StreamEntry) -> BucketEntry | None:
        """The bucket of a stream; None on the base surface."""
        bucket = stream.bucket
        if bucket is None and stream.key[:1] != NO_BUCKET and (name := bucket_of(stream.key)):
            bucket = self.buckets.entry(name)
            if bucket.state is not None:
                stream.bucket = bucket
        return bucket

    def record(self, stream: StreamEntry, record: Record) -> None:
        """Apply a record that follows from another one, and commit it."""
        self._record(stream, record)
        self.commit.schedule()

    def _record(self, stream: StreamEntry, record: Record) -> None:
        """Apply a record and add it to the open batch; the caller schedules the commit."""
        batch = self.commit.open
        kind = type(record)
        bucket: BucketEntry | None = None
        if kind is not TouchRecord:
            # Before anything changes, since loading it can fail.
            bucket = stream.bucket or self._bucket(stream)
            if bucket is not None and bucket.state is None:
                raise StorageDamaged(f"the bucket {bucket.key.decode()} was created")
        before = stream.state
        if kind is DeleteRecord and before is not None and before.fork is not None:
            # Also before anything changes: its source.
            self.stream(before.fork.key)
        change = batch.change(stream)
        after = apply(before, record)
        stream.state = change.after = after
        if kind is TouchRecord:
            assert after is not None
            self._checkpoint(stream, after)
            return
        if kind is ReferenceRecord:
            assert before is not None and after is not None
            self._checkpoint(stream, after)
            if bucket is not None and before.held != after.held:
                self.buckets.grow(bucket, growth(before, record))
            return
        change.is_visible = True
        if stream.watchers or stream.watchers_version != self._subscription_records.version:
            self.subscriptions.changed(stream, before, after)
        if type(record) is AppendRecord:
            assert before is not None and after is not None
            change.records.append(record)
            batch.count(before.tail, after.tail)
            batch.transaction.append(before.id, before.tail, record)
            self._checkpoint_if_due(stream, after, record)
            if bucket is not None and bucket.pending is batch and bucket.state is not None:
                bucket.state.bytes += len(record.payload)
                return
        elif type(record) is CreateRecord:
            assert after is not None
            self._create(stream, after, record, change)
        elif type(record) is DeleteRecord:
            assert before is not None
            change.deleted = True
            change.records.clear()
            stream.dirty_records = stream.dirty_bytes = 0
            batch.transaction.delete(stream.key, before)
        elif type(record) is SoftDeleteRecord:
            assert after is not None
            change.deleted = True
            change.records.clear()
            self._checkpoint(stream, after)
        elif type(record) is PublishRecord:
            assert before is not None and after is not None
            stream.dirty_records = stream.dirty_bytes = 0
            superseded = self.forks.hold(before)
            batch.transaction.publish(stream.key, before, after, record.content, superseded)
        if bucket is not None:
            self.buckets.grow(bucket, growth(before, record))
        if kind is DeleteRecord and before is not None and before.fork is not None:
            self.forks.release(before.fork)

    def _create(
        self, stream: StreamEntry, after: StreamState, record: CreateRecord, change: StreamChange
    ) -> None:
        self.stream_cache.add(stream)
        self._use_id(record.id)
        batch = self.commit.open
        batch.transaction.create(stream.key, after)
        begins = after.begins
        if record.content is not None and record.content.payload:
            change.records.append(record.content)
            batch.count(begins, after.tail)
            batch.transaction.append(after.id, begins, record.content)
        if after.fork is not None:
            self._record(self.stream(after.fork.key), ReferenceRecord(1))
        stream.touched_at = record.time
        if (deadline := after.deadline(self.sliding)) is not None:
            batch.transaction.schedule(Due(max(0, deadline), after.id, stream.key))

    def _checkpoint_if_due(
        self, stream: StreamEntry, state: StreamState, record: AppendRecord
    ) -> None:
        stream.dirty_records = records = stream.dirty_records + 1
        stream.dirty_bytes += len(record.payload)
        # The size of a checkpoint grows with the number of producers: then it comes less often.
        if stream.dirty_bytes >= CHECKPOINT_BYTES or (
            records >= CHECKPOINT_RECORDS and records >= len(state.producers)
        ):
            self._checkpoint(stream, state)

    def _checkpoint(self, stream: StreamEntry, state: StreamState) -> None:
        self.commit.open.transaction.checkpoint(stream.key, state)
        stream.dirty_records = stream.dirty_bytes = 0

    # -- entries -----------------------------------------------------------------------------

    def stream(self, key: bytes) -> StreamEntry:
        """The entry of this name, loaded if it is not in memory; the stream may not exist."""
        stream = self.stream_cache.get(key)
        if stream is None:
            stream = StreamEntry(key, self.store.load(key))
            if stream.state is not None:
                # What was replayed now must not be replayed again, with more, at the next load.
                stream.dirty_bytes = CHECKPOINT_BYTES
                # Names that do not exist must not evict streams that do.
                self.stream_cache.add(stream)
        return stream

    def _save_before_eviction(self, stream: StreamEntry) -> None:
        """Record what only memory has of a stream."""
        state = stream.state
        if state is None or self.failure is not None:
            return
        if self.sliding and stream.touched_at > state.touched_at:
            self._decide(stream, Touch(), stream.touched_at)
        if stream.dirty_records:
            self._checkpoint(stream, state)
            self.commit.schedule()

    async def close(self) -> None:
        """Commit what is pending, then close the store."""
        self._sweeper.stop()
        self.subscriptions.stop()
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
    """The bytes that a command brings to be stored; None if storing is not its purpose."""
    if type(command) is Append or type(command) is Create:
        return len(command.body)
    if type(command) is Publish and command.content is not None:
        return len(command.content)
    return None
