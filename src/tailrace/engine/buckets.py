"""Buckets as the engine keeps them: their entries, and the commands that create and delete them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.engine.commit import Reply
from tailrace.engine.entry import BucketEntry, StreamEntry
from tailrace.engine.errors import StorageFailed
from tailrace.engine.lru import LruCache
from tailrace.protocol.bucket import (
    BucketState,
    Growth,
    create_bucket,
    delete_bucket,
    grow,
    stream_bytes,
)
from tailrace.protocol.errors import BucketNotEmpty, BucketNotFound, Refusal
from tailrace.protocol.machine import Effect, Verdict

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["Buckets"]

BUCKETS_CACHED_MAX: Final = 16_384
EXPIRED_CHECKED_MAX: Final = 1000
"""At most this many expired streams are deleted, or subtracted, by one request."""

_CREATED: Final = Verdict(Effect.CREATED)
_DELETED: Final = Verdict(Effect.DELETED)


class Buckets:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._cache: LruCache[BucketEntry] = LruCache(BUCKETS_CACHED_MAX)

    def entry(self, key: bytes) -> BucketEntry:
        """The entry of this name, loaded if it is not in memory; the bucket may not exist."""
        bucket = self._cache.get(key)
        if bucket is None:
            bucket = BucketEntry(key, self._engine.store.bucket(key))
            if bucket.state is not None:
                self._cache.add(bucket)
        return bucket

    def peek(self, key: bytes) -> BucketState | None:
        """A bucket as readers see it, without caching it."""
        bucket = self._cache.peek(key)
        return self._engine.store.bucket(key) if bucket is None else bucket.durable

    def find(self, key: bytes) -> BucketState:
        """A bucket as readers see it. Raises BucketNotFound if it does not exist."""
        state = self.entry(key).durable
        if state is None:
            raise BucketNotFound
        # An expired stream does not count, even if it is not deleted yet.
        for stream in self.expired_streams(key + b"\0"):
            assert stream.durable is not None
            state = grow(state, -1, -stream_bytes(stream.durable))
        return state

    def exists(self, key: bytes) -> bool:
        """Whether readers see a bucket of this name."""
        return self.entry(key).durable is not None

    def create(self, key: bytes, reply: Reply) -> None:
        """X§1.2; `reply` is called once the outcome is durable."""
        self._submit(key, _CREATED, self._create, reply)

    def delete(self, key: bytes, reply: Reply) -> None:
        """X§1.5; `reply` is called once the outcome is durable."""
        self._submit(key, _DELETED, self._delete, reply)

    def _submit(
        self,
        key: bytes,
        verdict: Verdict,
        decide: Callable[[BucketEntry], BucketState | None],
        reply: Reply,
    ) -> None:
        commit = self._engine.commit
        if commit.failure is not None:
            reply(StorageFailed())
            return
        bucket = self.entry(key)
        try:
            state = decide(bucket)
        except Refusal as refusal:
            commit.respond(reply, refusal, bucket)
            return
        self._change(bucket, state)
        commit.open.replies.append((reply, (verdict, None)))
        commit.schedule()

    def _create(self, bucket: BucketEntry) -> BucketState:
        state = create_bucket(bucket.state, self._engine.clock())
        self._cache.add(bucket)
        return state

    def _delete(self, bucket: BucketEntry) -> None:
        try:
            delete_bucket(bucket.state)
        except BucketNotEmpty:
            # Expired streams do not count, even if they are not deleted yet.
            self._delete_expired(bucket.key + b"\0")
            self._engine.forks.sweep_for_bucket()
            delete_bucket(bucket.state)
        self._engine.subscriptions.drop_scope(bucket.key)

    def grow(self, bucket: BucketEntry, change: Growth) -> None:
        """Add what a record of the open batch changes about its bucket."""
        assert bucket.state is not None
        self._change(bucket, grow(bucket.state, change.streams, change.bytes))

    def _change(self, bucket: BucketEntry, state: BucketState | None) -> None:
        batch = self._engine.commit.open
        batch.transaction.put_bucket(bucket.key, state)
        bucket.state = state
        bucket.pending = batch
        batch.buckets[bucket] = state

    def expired_streams(self, prefix: bytes | tuple[bytes, ...]) -> list[StreamEntry]:
        """Streams that readers no longer see, and that their bucket still counts."""
        engine = self._engine
        now = engine.clock()
        keys = {due.key for due in engine.store.due(now, EXPIRED_CHECKED_MAX)}
        streams = {engine.stream(key) for key in keys if key.startswith(prefix)}
        # A deletion may be written already, and not be durable yet.
        streams.update(engine.commit.syncing_streams(prefix))
        return [
            stream
            for stream in streams
            # With forks, an expired stream is kept for them, and still counts.
            if stream.durable is not None
            and not stream.durable.forks
            and engine.expired(stream, stream.durable, now)
        ]

    def _delete_expired(self, prefix: bytes) -> None:
        """Delete the expired streams of a bucket, up to the first that has not expired."""
        engine = self._engine
        now = engine.clock()
        cursor = b""
        checked = 0
        while checked < EXPIRED_CHECKED_MAX and (names := engine.store.names(prefix, cursor, 16)):
            for key in names:
                stream = engine.stream(key)
                # No state: deleted in a batch that is not written yet. A soft-deleted stream is
                # removed with its last fork.
                state = stream.state
                if state is not None and not state.deleted and not engine.expire(stream, now):
                    return
            cursor = names[-1]
            checked += len(names)
