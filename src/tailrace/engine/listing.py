"""
Listings of buckets and of their streams.

They come from storage, in the order of keys: a page costs no more for those before it. What a batch
deletes while it is being synced is still visible to readers, and is merged in.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailrace.engine.entry import Entry
from tailrace.protocol.bucket import BucketState, grow, stream_bytes
from tailrace.protocol.errors import BucketNotFound
from tailrace.protocol.names import bucket_of
from tailrace.protocol.state import StreamState

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["BucketPage", "ChangedPage", "ListedStream", "Listing", "Page"]

NAMES_STEP: Final = 128
"""This many names are read at a time."""
TURN_S: Final = 0.002
"""A listing takes at most this long in one turn of the event loop."""


class ListedStream(NamedTuple):
    """A stream in a listing."""

    stream_id: bytes
    state: StreamState


class Page(NamedTuple):
    """Streams of a bucket in the order of their ids, and whether there are more."""

    streams: list[ListedStream]
    has_more: bool
    position: str = ""
    """From before the first stream was read: later changes are in `changed`."""


class ChangedPage(NamedTuple):
    """Streams of a bucket that changed, oldest change first; deleted ones have no state."""

    streams: list[tuple[bytes, StreamState | None]]
    has_more: bool
    position: str
    """Where to continue."""


class BucketPage(NamedTuple):
    """Buckets in the order of their ids, and whether there are more."""

    buckets: list[tuple[bytes, BucketState]]
    has_more: bool


class Turn:
    """Tells when a listing must let the event loop do other work."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + TURN_S

    @property
    def is_over(self) -> bool:
        return self._loop.time() > self._end

    async def pause(self) -> None:
        await asyncio.sleep(0)
        self._end = self._loop.time() + TURN_S


class Listing:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    async def page(self, key: bytes, prefix: bytes, after: bytes, count_max: int) -> Page:
        """
        X§1.4: streams whose ids begin with `prefix` and come after another id.

        Raises:
            BucketNotFound: The bucket does not exist.
        """
        if not self._engine.buckets.exists(key):
            raise BucketNotFound
        position = self._engine.commit.changes.position(key)
        page = await self.page_of(key + b"\0", prefix, after, count_max)
        return page._replace(position=position)

    async def page_of(self, stem: bytes, prefix: bytes, after: bytes, count_max: int) -> Page:
        """The same for all keys that begin with `stem`: a bucket, or the base surface."""
        engine = self._engine
        cursor = stem + after if after else b""
        found: list[ListedStream] = []
        turn = Turn()
        while True:
            step = min(NAMES_STEP, count_max + 1 - len(found))
            names = engine.store.names(stem + prefix, cursor, step)
            names = _merged(names, engine.commit.syncing_streams(stem + prefix), cursor, step)
            for name in names:
                state = engine.peek(name)
                if state is not None:
                    found.append(ListedStream(name[len(stem) :], state))
                if turn.is_over:
                    # Loading a stream may replay some of it.
                    await turn.pause()
            if len(found) > count_max:
                return Page(found[:count_max], has_more=True)
            if len(names) < step:
                return Page(found, has_more=False)
            cursor = names[-1]

    async def changed(
        self, key: bytes, prefix: bytes, position: str, count_max: int
    ) -> ChangedPage:
        """
        Streams whose ids begin with `prefix` and that changed after a position.

        Raises:
            BucketNotFound: The bucket does not exist.
            QueryInvalid, PositionGone: The changes since then are not known.
        """
        if not self._engine.buckets.exists(key):
            raise BucketNotFound
        changes = self._engine.commit.changes
        stem = key + b"\0"
        changed = changes.since(key, position)
        position = changes.position(key)
        if prefix:
            changed = [item for item in changed if item[0].startswith(stem + prefix)]
        has_more = len(changed) > count_max
        if has_more:
            # What changes again meanwhile is returned again later.
            position = changes.at(key, changed[count_max - 1][1])
        found: list[tuple[bytes, StreamState | None]] = []
        turn = Turn()
        for name, _ in changed[:count_max]:
            found.append((name[len(stem) :], self._engine.peek(name)))
            if turn.is_over:
                await turn.pause()
        return ChangedPage(found, has_more, position)

    async def all(
        self, parts: Sequence[tuple[bytes, bool]], after: bytes, count_max: int
    ) -> BucketPage:
        """
        Buckets that readers see, restricted to parts of the key space.

        Each part is the id of a bucket, or a prefix of ids (then true); in order, and none within
        another. Nothing else is read, so that the time taken shows nothing else.
        """
        expired: Counter[bytes] = Counter()
        expired_bytes: Counter[bytes] = Counter()
        stems = tuple(part if is_prefix else part + b"\0" for part, is_prefix in parts)
        for stream in self._engine.buckets.expired_streams(stems):
            assert stream.durable is not None
            expired[bucket_of(stream.key)] += 1
            expired_bytes[bucket_of(stream.key)] += stream_bytes(stream.durable)
        found: list[tuple[bytes, BucketState]] = []
        turn = Turn()
        for names in self._bucket_names(parts, after):
            for name in names:
                state = self._engine.buckets.peek(name)
                if state is not None:
                    found.append((name, grow(state, -expired[name], -expired_bytes[name])))
            if len(found) > count_max:
                return BucketPage(found[:count_max], has_more=True)
            if turn.is_over:
                await turn.pause()
        return BucketPage(found, has_more=False)

    def _bucket_names(
        self, parts: Sequence[tuple[bytes, bool]], after: bytes
    ) -> Iterator[list[bytes]]:
        """The ids that these parts may have after another id, some at a time."""
        for part, is_prefix in parts:
            if not is_prefix:
                if part > after:
                    yield [part]
                continue
            cursor = after
            while True:
                names = self._engine.store.bucket_names(part, cursor, NAMES_STEP)
                batch = self._engine.commit.syncing
                written = () if batch is None else batch.buckets
                leaving = [bucket for bucket in written if bucket.key.startswith(part)]
                names = _merged(names, leaving, cursor, NAMES_STEP)
                if names:
                    yield names
                if len(names) < NAMES_STEP:
                    break
                cursor = names[-1]


def _merged(
    names: list[bytes], entries: Sequence[Entry[Any]], after: bytes, count: int
) -> list[bytes]:
    """Stored names and those of entries, up to the last stored name if there may be more."""
    leaving = [
        entry.key
        for entry in entries
        if entry.key > after and (len(names) < count or entry.key < names[-1])
    ]
    return sorted({*names, *leaving}) if leaving else names
