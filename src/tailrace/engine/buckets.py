"""
Buckets as the engine keeps them, and the listing of their streams.

A bucket is decided upon like a stream: `state` runs ahead of the disk, `durable` is what readers
may see, and whoever is told of a state waits for its batch.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.engine.commit import CommitBatch, Outcome, Reply
from tailrace.engine.entry import StreamEntry
from tailrace.engine.errors import StorageFailed
from tailrace.engine.lru import LruCache
from tailrace.protocol.bucket import (
    BucketState,
    admit_stream,
    create_bucket,
    delete_bucket,
    grow,
    stream_bytes,
)
from tailrace.protocol.errors import BucketNotEmpty, BucketNotFound, Refusal
from tailrace.protocol.machine import Effect, Verdict
from tailrace.protocol.names import bucket_of
from tailrace.protocol.state import StreamState

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["BucketEntry", "BucketPage", "Buckets", "ChangedPage", "ListedStream", "Page"]

BUCKETS_HOT_MAX: Final = 16_384
LIST_STEP: Final = 128
"""So many names are read at a time."""
LIST_TURN_S: Final = 0.002
"""So long a turn of the loop may take for a listing."""
EXPIRED_LOOKS_MAX: Final = 1000
"""How many streams at the end of their lives one request clears away, or counts, itself."""

_CREATED: Final = Verdict(Effect.CREATED)
_DELETED: Final = Verdict(Effect.DELETED)


class BucketEntry:
    """One name and the bucket that it stands for, if any."""

    __slots__ = ("durable", "key", "pending", "state")

    def __init__(self, key: bytes, state: BucketState | None) -> None:
        self.key = key
        self.state = state
        self.durable = state
        self.pending: CommitBatch | None = None


class ListedStream(NamedTuple):
    """A stream in a listing."""

    stream_id: bytes
    state: StreamState


class Page(NamedTuple):
    """Streams of a bucket in the order of their ids, and whether there are more."""

    streams: list[ListedStream]
    has_more: bool
    position: str
    """From before its first stream was looked at: what changes after that shows in `changed`."""


class ChangedPage(NamedTuple):
    """Streams of a bucket that changed, oldest change first; those that are gone have no state."""

    streams: list[tuple[bytes, StreamState | None]]
    has_more: bool
    position: str
    """Where to go on."""


class BucketPage(NamedTuple):
    """Buckets in the order of their ids, and whether there are more."""

    buckets: list[tuple[bytes, BucketState]]
    has_more: bool


class Buckets:
    """All buckets of an engine."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._hot: LruCache[BucketEntry] = LruCache(
            BUCKETS_HOT_MAX, lambda bucket: bucket.pending is None
        )

    def bucket(self, key: bytes) -> BucketEntry:
        """The bucket of this name, loaded if need be; it may not exist."""
        bucket = self._hot.get(key)
        if bucket is None:
            bucket = BucketEntry(key, self._engine.store.bucket(key))
            if bucket.state is not None:
                self._hot.keep(key, bucket)
        return bucket

    def find(self, key: bytes) -> BucketState:
        """
        A bucket as readers may see it.

        Raises:
            BucketNotFound: There is none.
        """
        state = self.bucket(key).durable
        if state is None:
            raise BucketNotFound
        # What has expired is gone, even if nobody has cleared it away yet.
        for stream in self._expired(key + b"\0"):
            assert stream.durable is not None
            state = grow(state, -1, -stream_bytes(stream.durable))
        return state

    def exists(self, key: bytes) -> bool:
        """Whether readers may see it."""
        return self.bucket(key).durable is not None

    # -- commands ----------------------------------------------------------------------------

    def create(self, key: bytes, reply: Reply) -> None:
        """X§1.2; `reply` is called once the outcome is durable."""
        if self._refused(reply):
            return
        bucket = self.bucket(key)
        try:
            state = create_bucket(bucket.state, self._engine.clock())
        except Refusal as refusal:
            self._answer(bucket, reply, refusal)
            return
        self._hot.keep(key, bucket)
        self._change(bucket, state)
        self._engine.commit.open.replies.append((reply, (_CREATED, None)))
        self._engine.commit.schedule()

    def delete(self, key: bytes, reply: Reply) -> None:
        """X§1.5; `reply` is called once the outcome is durable."""
        if self._refused(reply):
            return
        bucket = self.bucket(key)
        try:
            try:
                delete_bucket(bucket.state)
            except BucketNotEmpty:
                # Streams whose time is over count no more, though they were not cleared away yet.
                self._clear_expired(key + b"\0")
                delete_bucket(bucket.state)
        except Refusal as refusal:
            self._answer(bucket, reply, refusal)
            return
        self._change(bucket, None)
        self._engine.commit.open.replies.append((reply, (_DELETED, None)))
        self._engine.commit.schedule()

    def exists_ahead(self, key: bytes, reply: Reply) -> bool:
        """Whether a stream's bucket exists for the next command; if not, the reply is underway."""
        if not (bucket_id := bucket_of(key)):
            return True
        bucket = self.bucket(bucket_id)
        try:
            admit_stream(bucket.state)
        except BucketNotFound as refusal:
            self._answer(bucket, reply, refusal)
            return False
        return True

    def grow(self, bucket: BucketEntry, streams: int, size: int) -> None:
        """Streams, or bytes of them, came to be, or went, in the batch that is open."""
        assert bucket.state is not None
        self._change(bucket, grow(bucket.state, streams, size))

    def _answer(self, bucket: BucketEntry, reply: Reply, outcome: Outcome) -> None:
        """Reply to what changes nothing: at once, unless it was decided ahead of the disk."""
        if bucket.pending is None:
            reply(outcome)
        else:
            bucket.pending.replies.append((reply, outcome))

    def _refused(self, reply: Reply) -> bool:
        if self._engine.failure is None:
            return False
        reply(StorageFailed())
        return True

    def _change(self, bucket: BucketEntry, state: BucketState | None) -> None:
        batch = self._engine.commit.open
        batch.transaction.put_bucket(bucket.key, state)
        bucket.state = state
        bucket.pending = batch
        batch.buckets[bucket] = state

    # -- listing -----------------------------------------------------------------------------

    async def page(self, key: bytes, prefix: bytes, after: bytes, count_max: int) -> Page:
        """
        X§1.4: streams whose ids begin with `prefix` and come after another id.

        Straight from storage, by key: no page costs more for those before it.

        Raises:
            BucketNotFound: There is none.
        """
        if not self.exists(key):
            raise BucketNotFound
        return await self.page_of(key + b"\0", prefix, after, count_max)

    async def page_of(self, stem: bytes, prefix: bytes, after: bytes, count_max: int) -> Page:
        """The same of whatever keys begin with `stem`: of a bucket, or of the base surface."""
        engine = self._engine
        position = engine.commit.changes.position
        cursor = stem + after if after else b""
        found: list[ListedStream] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + LIST_TURN_S
        while True:
            step = min(LIST_STEP, count_max + 1 - len(found))
            names = self._names(stem + prefix, cursor, step)
            for name in names:
                state = engine.peek(name)
                if state is not None:
                    found.append(ListedStream(name[len(stem) :], state))
                if loop.time() > until:
                    # To load a stream may be to replay some of it.
                    await asyncio.sleep(0)
                    until = loop.time() + LIST_TURN_S
            if len(found) > count_max:
                return Page(found[:count_max], has_more=True, position=position)
            if len(names) < step:
                return Page(found, has_more=False, position=position)
            cursor = names[-1]

    async def all(
        self, parts: Sequence[tuple[bytes, bool]], after: bytes, count_max: int
    ) -> BucketPage:
        """
        Buckets that readers may see, of these parts of all: from storage, by key.

        Each is the id of a bucket, or a beginning of ids (then true); in order, and none within
        another. Nothing else is looked at, so that nothing else shows in what it costs.
        """
        expired: Counter[bytes] = Counter()
        expired_bytes: Counter[bytes] = Counter()
        stems = tuple(part if is_prefix else part + b"\0" for part, is_prefix in parts)
        for stream in self._expired(stems):
            assert stream.durable is not None
            expired[bucket_of(stream.key)] += 1
            expired_bytes[bucket_of(stream.key)] += stream_bytes(stream.durable)
        found: list[tuple[bytes, BucketState]] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + LIST_TURN_S
        for names in self._parts(parts, after):
            for name in names:
                bucket = self._hot.peek(name) or BucketEntry(name, self._engine.store.bucket(name))
                if bucket.durable is not None:
                    state = grow(bucket.durable, -expired[name], -expired_bytes[name])
                    found.append((name, state))
            if len(found) > count_max:
                return BucketPage(found[:count_max], has_more=True)
            if loop.time() > until:
                await asyncio.sleep(0)
                until = loop.time() + LIST_TURN_S
        return BucketPage(found, has_more=False)

    def _parts(self, parts: Sequence[tuple[bytes, bool]], after: bytes) -> Iterator[list[bytes]]:
        """The ids that these parts may have after another, some at a time."""
        for part, is_prefix in parts:
            if not is_prefix:
                if part > after:
                    yield [part]
                continue
            names = self._bucket_names(part, after, LIST_STEP)
            while names:
                yield names
                if len(names) < LIST_STEP:
                    break
                names = self._bucket_names(part, names[-1], LIST_STEP)

    def _bucket_names(self, prefix: bytes, after: bytes, count: int) -> list[bytes]:
        """The keys of buckets that readers may see, and maybe of some that they may not."""
        names = self._engine.store.bucket_names(prefix, after, count)
        batch = self._engine.commit.syncing
        leaving = [
            bucket.key
            for bucket in (() if batch is None else batch.buckets)
            if bucket.key.startswith(prefix)
            and bucket.key > after
            and (len(names) < count or bucket.key < names[-1])
        ]
        return sorted({*names, *leaving}) if leaving else names

    async def changed(
        self, key: bytes, prefix: bytes, position: str, count_max: int
    ) -> ChangedPage:
        """
        Streams whose ids begin with `prefix` and that changed after a position.

        Raises:
            BucketNotFound: There is none.
            QueryInvalid, PositionGone: What changed since cannot be told.
        """
        engine = self._engine
        if not self.exists(key):
            raise BucketNotFound
        changes = engine.commit.changes
        stem = key + b"\0"
        now = changes.position
        changed = changes.since(key, position)
        if prefix:
            changed = [item for item in changed if item[0].startswith(stem + prefix)]
        found: list[tuple[bytes, StreamState | None]] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + LIST_TURN_S
        for name, _ in changed[:count_max]:
            found.append((name[len(stem) :], engine.peek(name)))
            if loop.time() > until:
                await asyncio.sleep(0)
                until = loop.time() + LIST_TURN_S
        if len(changed) <= count_max:
            return ChangedPage(found, has_more=False, position=now)
        # What changed again meanwhile, and was seen just now, comes once more.
        return ChangedPage(found, has_more=True, position=changes.at(changed[count_max - 1][1]))

    def _names(self, prefix: bytes, after: bytes, count: int) -> list[bytes]:
        """The keys of streams that readers may see, and maybe of some that they may not."""
        names = self._engine.store.names(prefix, after, count)
        leaving = [
            stream.key
            for stream in self._being_written(prefix)
            if stream.key > after and (len(names) < count or stream.key < names[-1])
        ]
        return sorted({*names, *leaving}) if leaving else names

    def _being_written(self, prefix: bytes | tuple[bytes, ...]) -> list[StreamEntry]:
        """Streams whose end may be written already, while it is not durable yet."""
        batch = self._engine.commit.syncing
        streams = () if batch is None else batch.changes
        return [stream for stream in streams if stream.key.startswith(prefix)]

    # -- streams whose time is over ----------------------------------------------------------

    def _expired(self, prefix: bytes | tuple[bytes, ...]) -> list[StreamEntry]:
        """Streams that readers may see no more, though their bucket still counts them."""
        engine = self._engine
        now = engine.clock()
        keys = {due.key for due in engine.store.due(now, EXPIRED_LOOKS_MAX)}
        streams = {engine.stream(key) for key in keys if key.startswith(prefix)}
        streams.update(self._being_written(prefix))
        return [
            stream
            for stream in streams
            if stream.durable is not None and engine.expired(stream, stream.durable, now)
        ]

    def _clear_expired(self, prefix: bytes) -> None:
        """End the streams whose time is over, as far as the first that lives on."""
        engine = self._engine
        now = engine.clock()
        cursor = b""
        looks = 0
        while looks < EXPIRED_LOOKS_MAX and (names := engine.store.names(prefix, cursor, 16)):
            for key in names:
                stream = engine.stream(key)
                if stream.state is None:
                    # Ended already, in a batch that is not written yet.
                    continue
                if not engine.expired(stream, stream.state, now):
                    return
                engine.expire(stream, now)
            cursor = names[-1]
            looks += len(names)
