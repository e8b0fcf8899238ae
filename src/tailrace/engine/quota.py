"""
How much a bucket may grow: checked once a command is accepted, and before it is recorded.

So a retry of what is stored already is never refused, and neither is what does not make the bucket
larger: a close, a deletion, a snapshot smaller than what it covers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.engine.entry import BucketEntry, StreamEntry
from tailrace.protocol.bucket import BucketState, Growth, growth
from tailrace.protocol.errors import Refusal
from tailrace.protocol.state import Record

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["Quota", "check_quota"]

Quota = Callable[[bytes, BucketState, Growth], None]
"""Raises a refusal if a bucket may not grow by this much."""

EXPIRED_CHECKED_MAX: Final = 1000
"""At most this many entries of the expiry index are checked to make room."""


def check_quota(
    engine: "Engine",
    quota: Quota,
    stream: StreamEntry,
    bucket: BucketEntry,
    record: Record,
    now: int,
) -> None:
    """
    Check what a record would add to its stream's bucket.

    The bucket's state runs ahead of the disk: decided commands count, stored or not.

    Raises:
        Refusal: The quota does not allow it, even after expired streams are deleted.
    """
    change = growth(stream.state, record)
    if change.streams <= 0 and change.bytes <= 0:
        return
    assert bucket.state is not None
    try:
        quota(bucket.key, bucket.state, change)
    except Refusal as refusal:
        # A rate limit passes with time. Deleting streams does not help.
        if refusal.status == 429 or not _delete_expired(engine, bucket.key + b"\0", now):
            raise
        quota(bucket.key, bucket.state, change)


def _delete_expired(engine: "Engine", prefix: bytes, now: int) -> bool:
    """Delete the expired streams of a bucket that the index has; returns whether any was."""
    deleted = False
    for due in engine.store.due(now, EXPIRED_CHECKED_MAX):
        if due.key.startswith(prefix):
            deleted = engine.expire(engine.stream(due.key), now) or deleted
    return deleted
