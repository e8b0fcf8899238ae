"""
Which streams a fold looks at, from where to where, decided once and on the driver.

A listing of the bucket says all that is needed: tails, snapshots, their times. No stream is asked
for one by one.

Rule 1: a stream is folded up to the tail that the listing had, exactly. What is appended meanwhile
is after the snapshot, and the next run's.

Rule 2: a stream is due if it has anything new, and of the policies that are given one at least is
met; with none given, anything new is enough.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tailrace.client import Bucket, Listed
from tailrace.exceptions import TailraceError
from tailrace.protocol.offset import START, Offset, parse_offset
from tailrace.spark.folds import FoldSpec

__all__ = ["FoldUnsupported", "Plan", "PlanEntry", "Policy", "group", "plan"]

BEGINNING: Final = "-1"
_STREAM_BYTES: Final = 4096
"""What a stream costs beyond its bytes, for groups of equal work: a snapshot to publish."""


class FoldUnsupported(TailraceError):
    """The server's listing does not contain the first and last offsets of streams."""

    message = (
        "the listing of bucket {bucket!r} does not say where streams begin and end: "
        "folding a bucket needs a Tailrace server"
    )
    bucket: str


@dataclass(frozen=True)
class Policy:
    """When a stream is due; what is None does not count."""

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
    """One stream to fold: what its snapshot does not cover, up to its tail."""

    bucket: str
    stream: str
    content_type: str
    start: str
    """The snapshot's offset, or the beginning."""
    until: str
    snapshot_bytes: int | None
    """None: there is no snapshot."""

    @property
    def first_message(self) -> int:
        """The number of the first message that is read."""
        return _place(self.start).message

    @property
    def messages(self) -> int:
        return parse_offset(self.until).message - self.first_message

    @property
    def bytes(self) -> int:
        return parse_offset(self.until).byte - _place(self.start).byte

    @property
    def bytes_before(self) -> int:
        """What the server keeps of it up to the tail."""
        return self.bytes + (self.snapshot_bytes or 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be folded, and what of the rest is worth a word."""

    due: list[PlanEntry]
    unsuited: list[PlanEntry]
    """They would be due, but this fold is not for streams of their type."""
    not_due: int


def plan(
    bucket: Bucket,
    bucket_id: str,
    spec: FoldSpec,
    policy: Policy,
    now_ms: int,
    *,
    prefix: str = "",
    pattern: str | None = None,
) -> Plan:
    """
    List a bucket and decide.

    Raises:
        NotFound: There is no such bucket.
        FoldUnsupported: The server is another one.
    """
    found = Plan([], [], 0)
    not_due = 0
    for listed in bucket.survey(prefix).streams:
        if pattern is not None and not fnmatchcase(listed.stream_id, pattern):
            continue
        entry = _entry(bucket_id, listed)
        if not policy.is_due(listed, entry, now_ms):
            not_due += 1
        elif spec.suits(entry.content_type):
            found.due.append(entry)
        else:
            found.unsuited.append(entry)
    return Plan(found.due, found.unsuited, not_due)


def _entry(bucket_id: str, listed: Listed) -> PlanEntry:
    if listed.next_offset is None or listed.earliest_offset is None:
        raise FoldUnsupported(bucket_id)
    # X§2.2: the snapshot's offset is the earliest that is retained.
    start = listed.snapshot_offset or BEGINNING
    size = (listed.snapshot_bytes or 0) if listed.snapshot_offset else None
    return PlanEntry(
        bucket_id, listed.stream_id, listed.content_type, start, listed.next_offset, size
    )


def _place(offset: str) -> Offset:
    return START if offset == BEGINNING else parse_offset(offset)


def group(entries: Sequence[PlanEntry], count: int) -> list[list[PlanEntry]]:
    """
    At most so many groups of about the same work, each in the order of the entries.

    A stream is folded in its order, so it is never divided: the largest may be a group of its own.
    """
    heap = [(0, number) for number in range(min(count, len(entries)))]
    groups: list[list[int]] = [[] for _ in heap]
    for place in _largest_first(entries):
        work, number = heap[0]
        groups[number].append(place)
        heapq.heapreplace(heap, (work + _work(entries[place]), number))
    return [[entries[place] for place in sorted(places)] for places in groups]


def _largest_first(entries: Sequence[PlanEntry]) -> Iterable[int]:
    return sorted(range(len(entries)), key=lambda place: -_work(entries[place]))


def _work(entry: PlanEntry) -> int:
    return entry.bytes_before + _STREAM_BYTES
