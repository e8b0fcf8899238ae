"""
Ranges of offsets: how much of each stream one batch reads, and which task reads which range.

No input or output. Only the choice of streams for a new micro-batch is random. The partitions of a
batch are a function of its ranges: a retried batch has the same partitions, so the producers of
the sink send the same messages.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from tailrace.protocol.offset import parse_offset

__all__ = ["OffsetRange", "PartialRange", "admit", "assign", "split_points"]

UNKNOWN_BYTES: Final = 1 << 20
"""The assumed size of a range on another server, whose offsets do not count bytes."""
STREAM_BYTES: Final = 2048
"""The fixed cost of a range, in bytes that are read in the same time."""
SPLIT_RATIO: Final = 1.5
"""A range is split if it is this much larger than a partition: boundaries cost a request."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The messages of one stream from `start` to before `end`."""

    stream: str
    start: str
    end: str
    is_tailrace: bool = True
    """Whether the offsets are those of a Tailrace server, which count messages and bytes."""
    bootstrap: bool = False
    """Whether the snapshot is read first, if there is one."""

    @property
    def first_message(self) -> int:
        return _offset(self.start)[0]

    @property
    def messages(self) -> int:
        return _offset(self.end)[0] - _offset(self.start)[0] if self.is_tailrace else 1

    @property
    def bytes(self) -> int:
        if not self.is_tailrace:
            return UNKNOWN_BYTES
        return _offset(self.end)[1] - _offset(self.start)[1]


def _offset(token: str) -> tuple[int, int]:
    return (0, 0) if token == "-1" else parse_offset(token)


@dataclass(frozen=True, slots=True)
class PartialRange:
    """The first messages of a range."""

    whole: OffsetRange
    messages: int


def admit(
    ranges: Sequence[OffsetRange], messages_max: int | None, bytes_max: int | None
) -> tuple[list[OffsetRange], list[PartialRange]]:
    """
    Choose what one micro-batch reads: whole ranges, and parts of ranges.

    Each stream gets one message and a share of the rest in proportion to its backlog. If the limit
    is below one message per stream, streams are chosen at random, so that none starves. Bytes
    are converted to messages by the mean size of a stream's messages.
    """
    shares = [each.messages for each in ranges]
    if messages_max is not None and sum(shares) > messages_max:
        shares = _shares(shares, messages_max)
    if bytes_max is not None:
        shares = _within_bytes(ranges, shares, bytes_max)
    pairs = list(zip(ranges, shares, strict=True))
    return (
        [each for each, share in pairs if share >= each.messages],
        [PartialRange(each, share) for each, share in pairs if 0 < share < each.messages],
    )


def _shares(weights: Sequence[int], limit: int) -> list[int]:
    """Integers that add up to a limit: one for each if possible, the rest in proportion."""
    count = len(weights)
    if limit <= count:
        chosen = set(random.sample(range(count), limit))
        return [int(at in chosen) for at in range(count)]
    rests, limit = [weight - 1 for weight in weights], limit - count
    total = sum(rests)
    shares = [1 + rest * limit // total for rest in rests]
    left = limit + count - sum(shares)
    by_remainder = sorted(range(count), key=lambda at: -(rests[at] * limit % total))
    for at in by_remainder[:left]:
        shares[at] += 1
    return shares


def _within_bytes(ranges: Sequence[OffsetRange], shares: list[int], bytes_max: int) -> list[int]:
    means = [each.bytes / max(1, each.messages) for each in ranges]
    if sum(share * mean for share, mean in zip(shares, means, strict=True)) <= bytes_max:
        return shares
    fitted = [0] * len(shares)
    left: float = bytes_max
    wanted = [at for at, share in enumerate(shares) if share]
    for at in random.sample(wanted, len(wanted)):
        # At least one message, or the query would make no progress.
        if means[at] <= left or not any(fitted):
            fitted[at] = 1
            left -= means[at]
    rest = sum((shares[at] - 1) * means[at] for at in wanted if fitted[at])
    if left > 0 and rest > 0:
        factor = min(1.0, left / rest)
        for at in wanted:
            fitted[at] += int((shares[at] - 1) * factor) if fitted[at] else 0
    return fitted


def _partition_bytes(ranges: Sequence[OffsetRange], target: int, count_min: int) -> int:
    total = sum(each.bytes + STREAM_BYTES for each in ranges)
    count = max(count_min, ceil(total / target), 1)
    return max(1, ceil(total / count))


def split_points(
    ranges: Sequence[OffsetRange], target: int, count_min: int
) -> dict[int, list[int]]:
    """The approximate bytes to split ranges at, by the index of the range."""
    size = _partition_bytes(ranges, target, count_min)
    ratio = SPLIT_RATIO if len(ranges) >= count_min else 1.0
    points = {}
    for index, each in enumerate(ranges):
        if each.is_tailrace and each.messages > 1 and each.bytes > ratio * size:
            start = _offset(each.start)[1]
            count = min(ceil((each.bytes + STREAM_BYTES) / size), each.messages)
            points[index] = [start + each.bytes * at // count for at in range(1, count)]
    return points


def _split(whole: OffsetRange, boundaries: Iterable[str]) -> Iterable[OffsetRange]:
    """Split a range; equal boundaries make no empty piece."""
    start = whole.start
    for boundary in (*boundaries, whole.end):
        if _offset(boundary) > _offset(start):
            bootstrap = whole.bootstrap and start == whole.start
            yield replace(whole, start=start, end=boundary, bootstrap=bootstrap)
            start = boundary


def assign(
    ranges: Sequence[OffsetRange],
    target: int,
    count_min: int,
    boundaries: Mapping[int, Sequence[str]],
) -> list[tuple[OffsetRange, ...]]:
    """
    The ranges of each partition, in order: large ranges are split, small ones grouped.

    `boundaries` has the offsets to split ranges at, by the index of the range.
    """
    size: float = _partition_bytes(ranges, target, count_min)
    pieces = [
        piece
        for index, whole in enumerate(ranges)
        for piece in (_split(whole, boundaries.get(index, ())) if whole.is_tailrace else (whole,))
    ]
    partitions = _grouped(pieces, size)
    while len(partitions) < min(count_min, len(pieces)):
        size *= 0.8
        partitions = _grouped(pieces, size)
    return partitions


def _grouped(pieces: Sequence[OffsetRange], size: float) -> list[tuple[OffsetRange, ...]]:
    groups: list[list[OffsetRange]] = []
    filled: float = 0
    for piece in pieces:
        cost = piece.bytes + STREAM_BYTES
        # A piece joins a group if at least half of it fits.
        if not groups or filled + cost / 2 > size:
            groups.append([])
            filled = 0
        groups[-1].append(piece)
        filled += cost
    return [tuple(group) for group in groups]
