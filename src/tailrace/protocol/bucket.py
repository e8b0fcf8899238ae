"""
Buckets (X§1): a namespace that is created explicitly and deleted only when it is empty.

Rule 1: a stream is created only in a bucket that exists, and a bucket is deleted only when it has
no streams. Both are decided upon the same states, one command after the other, so that no stream
is ever left without its bucket.

Rule 2: the number of streams is part of a bucket's state and commits together with the stream that
changes it.
"""

from msgspec import Struct
from msgspec.structs import replace

from tailrace.protocol.errors import BucketExists, BucketNotEmpty, BucketNotFound

__all__ = ["BucketState", "admit_stream", "count_streams", "create_bucket", "delete_bucket"]


class BucketState(Struct, frozen=True, gc=False):
    """A bucket at one moment; `None` is one that does not exist."""

    created_at: int
    streams: int = 0


def create_bucket(state: BucketState | None, now: int) -> BucketState:
    """
    X§1.2.

    Raises:
        BucketExists: There is one of this name, and it stays as it is.
    """
    if state is not None:
        raise BucketExists
    return BucketState(now)


def delete_bucket(state: BucketState | None) -> None:
    """
    X§1.5: a bucket MUST be empty before deletion.

    Raises:
        BucketNotFound: There is none.
        BucketNotEmpty: It has streams.
    """
    if state is None:
        raise BucketNotFound
    if state.streams:
        raise BucketNotEmpty(state.streams)


def admit_stream(state: BucketState | None) -> None:
    """
    X§1.2: creating a stream MUST NOT create its bucket.

    Raises:
        BucketNotFound: There is none.
    """
    if state is None:
        raise BucketNotFound


def count_streams(state: BucketState, difference: int) -> BucketState:
    """The bucket after a stream came to be, or went."""
    return replace(state, streams=state.streams + difference)
