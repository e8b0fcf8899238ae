"""
The plan of a fold, made on the driver: which streams, and which range of each.

A listing of the bucket contains all that is needed: tails, snapshots and their times. There is no
request per stream.

Rule 1: a stream is folded exactly up to the tail in the listing. Later messages come after the
snapshot, and belong to the next run.

Rule 2: a stream is due if it has new messages and meets at least one of the given thresholds, or
no threshold is given.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tailrace.client import Bucket, Listed
from tailrace.exceptions import TailraceError
from tailrace.protocol.offset import START, Offset, parse_offset
from tailrace.spark.folds import FoldSpec

__all__ = ["DuePolicy", "FoldPlan", "FoldUnsupported", "PlanEntry", "group", "plan"]

BEGINNING: Final = "-1"
_STREAM_BYTES: Final = 4096
"""The fixed cost of a stream in bytes: it has a snapshot to publish."""


class FoldUnsupported(TailraceError):
    """The server's listing does not contain the first and last offsets of streams."""

    message = (
        "the listing of bucket {bucket!r} does not say where streams begin and end: "
        "folding a bucket needs a Tailrace server"
    )
    bucket: str


@dataclass(frozen=True)
class DuePolicy:
    """The thresholds of rule 2; None is ignored."""

    min_bytes: int | None = None
    min_messages: int | None = None
    min_age_s: float | None = None

    def is_due(self, listed: Listed, entry: "PlanEntry", now_ms: int) -> bool:
        """Rule 2."""
        if not entry.messages:
            return False
        if (self.min_bytes, self.min_messages, self.min_age_s) == (None, None, None):
            return True
        since_ms = listed.snapshot_at_ms or listed.created_at_ms
        return (
            (self.min_bytes is not None and entry.bytes >= self.min_bytes)
            or (self.min_messages is not None and entry.messages >= self.min_messages)
            or (self.min_age_s is not None and now_ms - since_ms >= self.min_age_s * 1000)
        )


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One stream to fold: its messages from the snapshot to the tail."""

    bucket: str
    stream: str
    content_type: str
    start: str
    """The snapshot's offset, or the beginning."""
    until: str
    snapshot_bytes: int | None
    """None if there is no snapshot."""

    @property
    def first_message(self) -> int:
        """The number of the first message that is read."""
        return _parse(self.start).message

    @property
    def messages(self) -> int:
        return parse_offset(self.until).message - self.first_message

    @property
    def bytes(self) -> int:
        return parse_offset(self.until).byte - _parse(self.start).byte

    @property
    def bytes_before(self) -> int:
        """The bytes that the server stores up to the tail."""
        return self.bytes + (self.snapshot_bytes or 0)


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """The streams to fold."""

    due: list[PlanEntry]
    unsuited: list[PlanEntry]
    """Streams that are due, but have a content type that this fold cannot read."""
    not_due: int


def plan(
    bucket: Bucket,
    bucket_id: str,
    spec: FoldSpec,
    policy: DuePolicy,
    now_ms: int,
    *,
    prefix: str = "",
    pattern: str | None = None,
) -> FoldPlan:
    """
    List a bucket and choose the streams that are due.

    Raises:
        NotFound: There is no such bucket.
        FoldUnsupported: It is not a Tailrace server.
    """
    due: list[PlanEntry] = []
    unsuited: list[PlanEntry] = []
    not_due = 0
    for listed in bucket.survey(prefix).streams:
        if pattern is not None and not fnmatchcase(listed.stream_id, pattern):
            continue
        entry = _entry(bucket_id, listed)
        if not policy.is_due(listed, entry, now_ms):
            not_due += 1
        else:
            (due if spec.suits(entry.content_type) else unsuited).append(entry)
    return FoldPlan(due, unsuited, not_due)


def _entry(bucket_id: str, listed: Listed) -> PlanEntry:
    if listed.next_offset is None or listed.earliest_offset is None:
        raise FoldUnsupported(bucket_id)
    # X§2.2: the snapshot's offset is the earliest that is retained.
    start = listed.snapshot_offset or BEGINNING
    size = (listed.snapshot_bytes or 0) if listed.snapshot_offset else None
    return PlanEntry(
        bucket_id, listed.stream_id, listed.content_type, start, listed.next_offset, size
    )


def _parse(offset: str) -> Offset:
    return START if offset == BEGINNING else parse_offset(offset)


def group(entries: Sequence[PlanEntry], count: int) -> list[list[PlanEntry]]:
    """
    At most `count` groups of about the same cost, each in the order of the entries.

    A stream is folded in order, so it is never divided: the largest may be the only one in a group.
    """
    costs = [entry.bytes_before + _STREAM_BYTES for entry in entries]
    heap = [(0, number) for number in range(min(count, len(entries)))]
    groups: list[list[int]] = [[] for _ in heap]
    for index in sorted(range(len(entries)), key=lambda index: -costs[index]):
        cost, number = heap[0]
        groups[number].append(index)
        heapq.heapreplace(heap, (cost + costs[index], number))
    return [[entries[index] for index in sorted(indexes)] for indexes in groups]
