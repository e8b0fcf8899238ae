"""
How much a bucket may grow: asked once a command is accepted, and before it is recorded.

So what is stored already is never refused to whoever sends it again, and what makes a bucket no
larger is not even asked about: a close, a deletion, a snapshot smaller than what it covers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.engine.entry import StreamEntry
from tailrace.protocol.bucket import BucketState, Growth, growth
from tailrace.protocol.errors import Refusal
from tailrace.protocol.names import bucket_of
from tailrace.protocol.state import Record

if TYPE_CHECKING:
    from tailrace.engine.buckets import BucketEntry
    from tailrace.engine.engine import Engine

__all__ = ["GrowthRefused", "Quota", "check_quota"]

Quota = Callable[[bytes, BucketState, Growth], None]
"""Raises a refusal if a bucket, as it is, may not grow by so much."""

EXPIRED_LOOKS_MAX: Final = 1000
"""So many streams at the end of their lives one refusal looks at, to make room."""


class GrowthRefused(Exception):
    """What a quota refused, and the bucket that it was decided upon."""

    def __init__(self, bucket: "BucketEntry", refusal: Refusal) -> None:
        super().__init__(bucket, refusal)
        self.bucket = bucket
        self.refusal = refusal


def check_quota(
    engine: "Engine", quota: Quota, stream: StreamEntry, record: Record, now: int
) -> None:
    """
    Ask for what a record would add to its stream's bucket.

    The bucket runs ahead of the disk: what is decided counts, whether it is stored yet or not.

    Raises:
        GrowthRefused: With what the quota raises, though all that has expired is gone.
    """
    change = growth(stream.state, record)
    if change.streams <= 0 and change.bytes <= 0:
        return
    bucket = engine.buckets.bucket(bucket_of(stream.key))
    assert bucket.state is not None
    try:
        try:
            quota(bucket.key, bucket.state, change)
        except Refusal as refusal:
            # A rate passes with time, and not by making room.
            if refusal.status == 429 or not _end_expired(engine, bucket.key + b"\0", now):
                raise
            quota(bucket.key, bucket.state, change)
    except Refusal as refusal:
        raise GrowthRefused(bucket, refusal) from None


def _end_expired(engine: "Engine", prefix: bytes, now: int) -> int:
    """End streams whose time is over, as far as the index knows; returns how many."""
    ended = 0
    for due in engine.store.due(now, EXPIRED_LOOKS_MAX):
        if due.key.startswith(prefix):
            stream = engine.stream(due.key)
            if stream.state is not None and engine.expired(stream, stream.state, now):
                engine.expire(stream, now)
                ended += 1
    return ended
