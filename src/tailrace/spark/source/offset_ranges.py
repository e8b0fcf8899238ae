"""
Spans of streams: how much of them one batch reads, and which task reads which.

No input, no output; only what a micro-batch begins with may be left to chance. A replay of it plans
the same partitions from the same marks, and so the sink's producers of a retried batch carry the
same messages.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from tailrace.protocol.offset import parse_offset

__all__ = ["Cut", "Span", "admit", "assign", "split_points"]

UNKNOWN_BYTES: Final = 1 << 20
"""What a span of another server counts for: its offsets do not say how long it is."""
STREAM_BYTES: Final = 2048
"""What a span costs beside its messages, in bytes that are read in the same time."""
SPLIT_SHARE: Final = 1.5
"""A span is split if it is so much larger than a partition: boundaries cost a request."""


@dataclass(frozen=True, slots=True)
class Span:
    """Messages of one stream, from an offset to before another."""

    stream: str
    start: str
    end: str
    ours: bool = True
    """Whether the offsets are those of a Tailrace server, which count messages and bytes."""
    bootstrap: bool = False
    """Whether the snapshot is read first, if one stands before it."""

    @property
    def first_message(self) -> int:
        return _offset(self.start)[0]

    @property
    def messages(self) -> int:
        return _offset(self.end)[0] - _offset(self.start)[0] if self.ours else 1

    @property
    def bytes(self) -> int:
        return _offset(self.end)[1] - _offset(self.start)[1] if self.ours else UNKNOWN_BYTES


def _offset(token: str) -> tuple[int, int]:
    return (0, 0) if token == "-1" else parse_offset(token)


@dataclass(frozen=True, slots=True)
class Cut:
    """A span that is to end earlier: after so many messages."""

    span: Span
    messages: int


def admit(
    spans: Sequence[Span], messages_max: int | None, bytes_max: int | None
) -> tuple[list[Span], list[Cut]]:
    """
    What fits into one micro-batch: spans that are read whole, and those that are cut.

    Each stream gets a message, and a share of the rest by how far it is behind. Where there is not
    room for one of each, chance decides, so that none waits for ever. Bytes are made messages
    by a stream's mean.
    """
    if messages_max is not None and sum(span.messages for span in spans) > messages_max:
        shares = _shares([span.messages for span in spans], messages_max)
    else:
        shares = [span.messages for span in spans]
    if bytes_max is not None:
        shares = _within_bytes(spans, shares, bytes_max)
    whole = [span for span, share in zip(spans, shares, strict=True) if share >= span.messages]
    cuts = [
        Cut(span, share)
        for span, share in zip(spans, shares, strict=True)
        if 0 < share < span.messages
    ]
    return whole, cuts


def _shares(weights: Sequence[int], limit: int) -> list[int]:
    """Whole numbers that add up to a limit: one for each if possible, the rest in proportion."""
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


def _within_bytes(spans: Sequence[Span], shares: list[int], bytes_max: int) -> list[int]:
    means = [span.bytes / max(1, span.messages) for span in spans]
    if sum(share * mean for share, mean in zip(shares, means, strict=True)) <= bytes_max:
        return shares
    fitted = [0] * len(shares)
    left: float = bytes_max
    wanted = [at for at, share in enumerate(shares) if share]
    for at in random.sample(wanted, len(wanted)):
        # One message at least, or the query would stand still.
        if means[at] <= left or not any(fitted):
            fitted[at] = 1
            left -= means[at]
    rest = sum((shares[at] - 1) * means[at] for at in wanted if fitted[at])
    if left > 0 and rest > 0:
        factor = min(1.0, left / rest)
        for at in wanted:
            fitted[at] += int((shares[at] - 1) * factor) if fitted[at] else 0
    return fitted


def _partition_bytes(spans: Sequence[Span], target: int, count_min: int) -> int:
    total = sum(span.bytes + STREAM_BYTES for span in spans)
    count = max(count_min, ceil(total / target), 1)
    return max(1, ceil(total / count))


def split_points(spans: Sequence[Span], target: int, count_min: int) -> list[tuple[int, list[int]]]:
    """For each span that is to be split: its index, and the bytes to split it at, about."""
    size = _partition_bytes(spans, target, count_min)
    share = SPLIT_SHARE if len(spans) >= count_min else 1.0
    points = []
    for index, span in enumerate(spans):
        if span.ours and span.messages > 1 and span.bytes > share * size:
            start = _offset(span.start)[1]
            count = min(ceil((span.bytes + STREAM_BYTES) / size), span.messages)
            points.append((index, [start + span.bytes * at // count for at in range(1, count)]))
    return points


def _pieces(span: Span, boundaries: Iterable[str]) -> Iterable[Span]:
    """A span in pieces; a boundary that falls together with another one makes none."""
    start = span.start
    for boundary in (*boundaries, span.end):
        if _offset(boundary) > _offset(start):
            yield replace(
                span, start=start, end=boundary, bootstrap=span.bootstrap and start == span.start
            )
            start = boundary


def assign(
    spans: Sequence[Span], target: int, count_min: int, boundaries: Callable[[int], Sequence[str]]
) -> list[tuple[Span, ...]]:
    """
    Partitions: large spans in pieces, small ones together, in order.

    `boundaries` has, by the index of a span, the offsets that it is split at.
    """
    size: float = _partition_bytes(spans, target, count_min)
    pieces = [
        piece
        for index, span in enumerate(spans)
        for piece in (_pieces(span, boundaries(index)) if span.ours else (span,))
    ]
    partitions = _grouped(pieces, size)
    while len(partitions) < min(count_min, len(pieces)):
        size *= 0.8
        partitions = _grouped(pieces, size)
    return partitions


def _grouped(pieces: Sequence[Span], size: float) -> list[tuple[Span, ...]]:
    partitions: list[tuple[Span, ...]] = []
    group: list[Span] = []
    filled = 0
    for piece in pieces:
        cost = piece.bytes + STREAM_BYTES
        # Half over is as good as half empty.
        if group and filled + cost / 2 > size:
            partitions.append(tuple(group))
            group, filled = [], 0
        group.append(piece)
        filled += cost
    if group:
        partitions.append(tuple(group))
    return partitions
