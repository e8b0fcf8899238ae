"""
Buckets (X§1): a namespace that is created explicitly and deleted only when it is empty.

Rule 1: a stream is created only in a bucket that exists, and a bucket is deleted only when it has
no streams. Both are decided upon the same states, one command after the other, so that no stream
is ever without its bucket.

Rule 2: the number of streams and of bytes is part of a bucket's state and commits together with the
stream that changes it.

Rule 3: a stream's bytes are what it retains, from its earliest offset to its tail, and its latest
snapshot. What a fork inherits counts for the stream that stores it, also after that one no longer
retains it. `growth` says what each record changes, so bytes are never counted again.
"""

from typing import NamedTuple

from msgspec import Struct

from tailrace.protocol.errors import BucketExists, BucketNotEmpty, BucketNotFound
from tailrace.protocol.state import (
    AppendRecord,
    CreateRecord,
    DeleteRecord,
    PublishRecord,
    Record,
    ReferenceRecord,
    StreamState,
)

__all__ = [
    "BucketState",
    "Growth",
    "admit_stream",
    "create_bucket",
    "delete_bucket",
    "grow",
    "growth",
    "stream_bytes",
]


_tuple = tuple.__new__


class BucketState(Struct, gc=False):
    """
    A bucket at one moment; `None` is a bucket that does not exist.

    Not frozen: the appends of one batch add their bytes to one state. It does not change any more
    once its batch is written.
    """

    created_at: int
    streams: int = 0
    bytes: int = 0


class Growth(NamedTuple):
    """What a record adds to the bucket of its stream, and its number of messages."""

    streams: int = 0
    bytes: int = 0
    messages: int = 0


_CREATED_EMPTY = Growth(1)


def create_bucket(state: BucketState | None, now: int) -> BucketState:
    """X§1.2. Raises BucketExists if there is one."""
    if state is not None:
        raise BucketExists
    return BucketState(now)


def delete_bucket(state: BucketState | None) -> None:
    """X§1.5: a bucket MUST be empty before deletion. Raises BucketNotFound, BucketNotEmpty."""
    if state is None:
        raise BucketNotFound
    if state.streams:
        raise BucketNotEmpty(state.streams)


def admit_stream(state: BucketState | None) -> None:
    """X§1.2: creating a stream MUST NOT create its bucket. Raises BucketNotFound."""
    if state is None:
        raise BucketNotFound


def grow(state: BucketState, streams: int, size: int) -> BucketState:
    """The bucket after streams, and bytes, were added or removed (then negative)."""
    return BucketState(state.created_at, state.streams + streams, state.bytes + size)


def stream_bytes(state: StreamState) -> int:
    """Rule 3."""
    # A snapshot at the tail would supersede all of it.
    return state.superseded(state.tail) + state.held


def growth(before: StreamState | None, record: Record) -> Growth:
    """What a record changes about the bucket of its stream."""
    if type(record) is AppendRecord:
        # Not `Growth(…)`, whose constructor is Python: this runs for every append.
        return _tuple(Growth, (0, len(record.payload), len(record.lengths) or bool(record.payload)))
    if type(record) is CreateRecord:
        content = record.content
        if content is None:
            return _CREATED_EMPTY
        return Growth(1, len(content.payload), content.count)
    match record:
        case DeleteRecord():
            assert before is not None
            return Growth(-1, -stream_bytes(before))
        case PublishRecord(snapshot):
            assert before is not None
            # Forks may need what it supersedes: then it stays, and still counts.
            superseded = 0 if before.forks else before.superseded(snapshot.offset)
            return Growth(0, snapshot.size - superseded)
        case ReferenceRecord(change):
            assert before is not None
            return Growth(0, 0 if before.forks + change else -before.held)
    return Growth()
