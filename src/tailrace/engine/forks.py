"""
Forks as the engine keeps them: the references to their sources, and what is kept for them.

Rule 1: a stream has as many references as it has forks. A fork and its reference are created, and
removed, in one batch.

Rule 2: a deleted stream with references stays, soft-deleted, and is removed in the batch that
removes its last fork. Its own source may then follow, and so on. One batch removes at most
`STEPS_MAX` of them; the next one is queued, and the sweeper continues there.

Rule 3: what a source with forks no longer retains is held: a snapshot was published, and the
records before it and the previous snapshot are needed by forks. It becomes garbage after the last
fork is removed.

Entries of the store, `Transaction.put_held`; numbers grow:

    h  stream id u64  number u64   a piece of garbage that is held for the forks of a stream
    q  stream id u64  number u64   the name of a stream without forks: remove it, if it is
                                   soft-deleted; what is held for it below the number is garbage
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from tailrace.engine.base import Garbage
from tailrace.engine.entry import StreamEntry
from tailrace.engine.errors import StorageFailed
from tailrace.engine.search import find_fork_point
from tailrace.protocol.errors import Refusal
from tailrace.protocol.fork import ForkOrigin
from tailrace.protocol.state import (
    Create,
    DeleteRecord,
    ForkPoint,
    ForkRequest,
    ReferenceRecord,
    StreamState,
)

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["HELD", "QUEUED", "Forks", "decode_held", "held_key", "held_stream"]

STEPS_MAX: Final = 64
"""At most this many streams are removed because a fork of theirs was, in one batch."""
STEPS_OF_BUCKET_MAX: Final = 1000
"""The same, if a bucket is to be deleted."""
QUEUE_COUNT_MAX: Final = 8
"""At most this many queued streams are worked on at a time."""
HELD_COUNT_MAX: Final = 256
"""At most this many held entries of a stream become garbage at a time."""

HELD: Final = b"h"
QUEUED: Final = b"q"
_AFTER_QUEUED: Final = b"r"


def held_key(kind: bytes, stream_id: int, number: int) -> bytes:
    return kind + stream_id.to_bytes(8, "big") + number.to_bytes(8, "big")


def held_stream(key: bytes) -> int:
    """The id of the stream that an entry is about."""
    return int.from_bytes(key[1:9], "big")


def decode_held(value: bytes) -> Garbage:
    return Garbage(*msgspec.msgpack.decode(value, type=tuple[int, int, int | None, bool]))


class _NotDurable(Exception):
    """A record that a fork has to read is decided upon, and not durable yet."""


class Forks:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        # Origins of removed forks, while `release` works on them.
        self._released: deque[ForkOrigin] = deque()
        self._steps_max = STEPS_MAX
        # A step finds the same entries until its batch is written: one at a time.
        self._sweeping = False
        # Entries of the queue whose streams cannot be read, until a restart.
        self._unreadable: set[bytes] = set()

    # -- creation ----------------------------------------------------------------------------

    def prepare(self, stream: StreamEntry, command: Create, now: int) -> Create | None:
        """Add to a command what `decide` has to know; None: not before the next commit."""
        request = command.fork
        assert request is not None
        source = self._engine.stream(request.key)
        if source.state is not None:
            self._engine.expire(source, now)
        point: ForkPoint | Refusal | None = None
        if stream.state is None:
            try:
                point = self._find_point(source, request)
            except _NotDurable:
                return None
            except Refusal as refusal:
                point = refusal
        return replace(command, fork=replace(request, source=source.state, point=point))

    def _find_point(self, source: StreamEntry, request: ForkRequest) -> ForkPoint | None:
        """Look at the source's record at the fork offset, if that is necessary."""
        state, durable, offset = source.state, source.durable, request.offset
        if state is None or state.deleted or offset is None:
            return None
        if not state.earliest.byte <= offset.byte < state.tail.byte:
            return None
        if durable is None or durable.id != state.id or offset.byte >= durable.tail.byte:
            raise _NotDurable
        return find_fork_point(self._engine.store, durable, offset, request.sub_offset)

    # -- removal -----------------------------------------------------------------------------

    def release(self, origin: ForkOrigin) -> None:
        """A fork was removed in the open batch: remove its reference, and follow the chain."""
        self._released.append(origin)
        if len(self._released) > 1:
            # From the loop below, which removes a source: no recursion, however long the chain is.
            return
        removed = 0
        try:
            while self._released:
                removed += self._release(self._released[0], removed < self._steps_max)
                self._released.popleft()
        finally:
            self._released.clear()

    def _release(self, origin: ForkOrigin, may_remove: bool) -> bool:
        """Remove one reference; returns whether the source was removed with it."""
        source = self._engine.stream(origin.key)
        state = source.state
        if state is None or state.id != origin.id or not state.forks:
            self._report(f"stream {origin.id} has no reference of its fork", None)
            return False
        self._engine.record(source, ReferenceRecord(-1))
        if state.forks > 1:
            return False
        removed = state.deleted and may_remove and self._remove(source)
        if state.held or (state.deleted and not removed):
            key = held_key(QUEUED, state.id, self._engine.take_id())
            self._engine.commit.open.transaction.put_held(key, source.key)
        return removed

    def _remove(self, source: StreamEntry) -> bool:
        try:
            self._engine.record(source, DeleteRecord(self._engine.clock()))
        except Exception as error:
            # Its own source cannot be read. The removal of the fork must not fail for that.
            self._report(f"cannot remove {source!r}", error)
            return False
        return True

    def _report(self, message: str, error: Exception | None) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error})

    # -- what is held ------------------------------------------------------------------------

    def hold(self, state: StreamState) -> Callable[[Garbage], None] | None:
        """Where to put what a stream no longer retains; None: nothing of it is needed."""
        if not state.forks:
            return None

        def put(garbage: Garbage) -> None:
            key = held_key(HELD, state.id, self._engine.take_id())
            value = msgspec.msgpack.encode(tuple(garbage))
            self._engine.commit.open.transaction.put_held(key, value)

        return put

    def sweep(self) -> bool:
        """Work on the queue, in one bounded step; returns whether there may be more."""
        if self._sweeping:
            return False
        count_max = QUEUE_COUNT_MAX + len(self._unreadable)
        queued = self._engine.store.held(QUEUED, _AFTER_QUEUED, count_max)
        queued = [item for item in queued if item[0] not in self._unreadable]
        for key, name in queued:
            try:
                self._work_on(key, name)
            except Exception as error:
                self._unreadable.add(key)
                self._report(f"cannot release stream {held_stream(key)}", error)
        if queued:
            self._sweeping = True
            self._engine.commit.when_durable(self._swept)
        return bool(queued)

    def _swept(self, _failure: StorageFailed | None) -> None:
        self._sweeping = False

    def sweep_for_bucket(self) -> None:
        """A bucket is to be deleted: remove what deleted forks of it have released."""
        self._steps_max = STEPS_OF_BUCKET_MAX
        try:
            self.sweep()
        finally:
            self._steps_max = STEPS_MAX

    def _work_on(self, key: bytes, name: bytes) -> None:
        engine = self._engine
        stream_id = held_stream(key)
        stream = engine.stream(name)
        state = stream.state
        exists = state is not None and state.id == stream_id
        if exists and state is not None and state.deleted and not state.forks:
            engine.record(stream, DeleteRecord(engine.clock()))
            exists = False
        first, end = held_key(HELD, stream_id, 0), HELD + key[1:]
        held = engine.store.held(first, end, HELD_COUNT_MAX)
        transaction = engine.commit.open.transaction
        for held_at, value in held:
            garbage = decode_held(value)
            # All records of a stream that was removed are garbage already.
            if garbage.until is None or exists:
                transaction.discard(garbage)
            transaction.put_held(held_at, None)
        if len(held) < HELD_COUNT_MAX:
            transaction.put_held(key, None)
