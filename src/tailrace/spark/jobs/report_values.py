"""What a report says of streams and buckets, and how what tasks measured adds up to it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tailrace.client import Listed
from tailrace.protocol.offset import parse_offset

__all__ = [
    "Compaction",
    "Fold",
    "Growth",
    "Measured",
    "Report",
    "Sizes",
    "Summary",
    "sizes_of",
    "summarize",
]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of messages, in bytes; the percentiles are good to one per cent."""

    p50: int = 0
    p95: int = 0
    max: int = 0


def sizes_of(bins: Iterable[tuple[int, int]]) -> Sizes:
    """Sizes from (the largest size in a bin, how many there are)."""
    found = sorted(bins)
    total = sum(count for _, count in found)
    if not total:
        return Sizes()
    return Sizes(_percentile(found, total, 50), _percentile(found, total, 95), found[-1][0])


def _percentile(bins: Sequence[tuple[int, int]], total: int, percent: int) -> int:
    """The smallest size that so many per cent of the messages do not exceed."""
    wanted = -(-total * percent // 100)
    seen = 0
    for size, count in bins:
        seen += count
        if seen >= wanted:
            return size
    return bins[-1][0]


@dataclass(frozen=True, slots=True)
class Growth:
    """What was committed in one hour, or on one day."""

    start_ms: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """What snapshots have saved: bytes of messages that were dropped, less the snapshots'."""

    messages: int = 0
    bytes: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0

    @property
    def saved(self) -> int:
        return self.bytes - self.snapshot_bytes


@dataclass(frozen=True, slots=True)
class Fold:
    """What keeping the last message of each key would save, of what is retained now."""

    keys: int = 0
    bytes: int = 0
    saved: int = 0


@dataclass(slots=True)
class Measured:
    """What the tasks have measured of one stream, or of several together."""

    messages: int = 0
    bytes: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    # By bin: the largest size in it, and how many messages.
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    # By start: messages and bytes.
    periods: dict[int, tuple[int, int]] = field(default_factory=dict)
    producers: dict[str, int] = field(default_factory=dict)
    """The busiest, with their messages."""
    producer_count: int = 0
    keys: int = 0
    key_bytes: int = 0

    def add_size(self, bin_: int, largest: int, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size
        before, count = self.sizes.get(bin_, (0, 0))
        self.sizes[bin_] = max(before, largest), count + messages

    def add_period(self, start: int, messages: int, size: int, first: int, last: int) -> None:
        count, total = self.periods.get(start, (0, 0))
        self.periods[start] = count + messages, total + size
        self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
        self.last_ms = last if self.last_ms is None else max(self.last_ms, last)

    def add(self, other: "Measured") -> None:
        """Take in what another one has; not its producers, who may be the same."""
        for bin_, (largest, messages) in other.sizes.items():
            self.add_size(bin_, largest, messages, 0)
        self.bytes += other.bytes
        if other.first_ms is not None and other.last_ms is not None:
            for start, (messages, size) in other.periods.items():
                self.add_period(start, messages, size, other.first_ms, other.last_ms)
        self.keys += other.keys
        self.key_bytes += other.key_bytes


@dataclass(frozen=True, slots=True)
class Summary:
    """A stream, or (without its name) a bucket."""

    bucket: str | None
    stream: str | None
    streams: int
    content_type: str | None
    closed: int
    messages: int
    bytes: int
    """Of the messages themselves."""
    first_ms: int | None
    last_ms: int | None
    rate_per_s: float | None
    """Messages a second from the first that is retained to the last."""
    sizes: Sizes
    producers: int
    """How many wrote with a producer id."""
    busiest: Mapping[str, int]
    growth: Sequence[Growth]
    compaction: Compaction
    fold: Fold | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.bucket, self.stream)))

    def fields(self) -> dict[str, Any]:
        """As it is written as JSON."""
        found = asdict(self)
        found["compaction"]["saved"] = self.compaction.saved
        unwanted = ("streams",) if self.stream is not None else ("stream", "content_type")
        if self.stream is not None:
            found["closed"] = bool(self.closed)
        return {name: value for name, value in found.items() if name not in unwanted}


@dataclass(frozen=True, slots=True)
class Report:
    """What is in the buckets of a server."""

    url: str
    at_ms: int
    period: str
    """hour or day"""
    key: str | None
    buckets: Sequence[Summary]
    streams: Sequence[Summary]
    """Of all buckets, each bucket's by name."""


class Planned(Protocol):
    """The streams of a bucket."""

    @property
    def bucket(self) -> str: ...
    @property
    def streams(self) -> Sequence[Listed]: ...


def summarize(
    plans: Sequence[Planned],
    measured: Mapping[int, Measured],
    producers: Mapping[int, Measured],
    errors: Mapping[int, str],
    *,
    has_key: bool,
) -> dict[str, list[Summary]]:
    """`buckets` and `streams` of a report; streams are numbered through all buckets."""
    buckets, streams = [], []
    place = 0
    for number, plan in enumerate(plans):
        whole = Measured()
        dropped = Compaction()
        for listed in plan.streams:
            found = measured.get(place, Measured())
            made = _of_stream(plan.bucket, listed, found, errors.get(place), has_key=has_key)
            streams.append(made)
            whole.add(found)
            dropped = _together(dropped, made.compaction)
            place += 1
        whole.producers = producers[number].producers if number in producers else {}
        whole.producer_count = producers[number].producer_count if number in producers else 0
        closed = sum(listed.closed for listed in plan.streams)
        head = (plan.bucket, None, len(plan.streams), None, closed)
        buckets.append(_summary(head, whole, dropped, None, has_key=has_key))
    return {"buckets": buckets, "streams": streams}


def _of_stream(
    bucket: str, listed: Listed, found: Measured, error: str | None, *, has_key: bool
) -> Summary:
    head = (bucket, listed.stream_id, 1, listed.content_type, int(listed.closed))
    return _summary(head, found, _compaction(listed), error, has_key=has_key)


def _summary(
    head: tuple[str, str | None, int, str | None, int],
    found: Measured,
    compaction: Compaction,
    error: str | None,
    *,
    has_key: bool,
) -> Summary:
    growth = [Growth(start, *counts) for start, counts in sorted(found.periods.items())]
    fold = Fold(found.keys, found.key_bytes, found.bytes - found.key_bytes)
    return Summary(
        *head,
        messages=found.messages,
        bytes=found.bytes,
        first_ms=found.first_ms,
        last_ms=found.last_ms,
        rate_per_s=_rate(found),
        sizes=sizes_of(found.sizes.values()),
        producers=found.producer_count,
        busiest=found.producers,
        growth=growth,
        compaction=compaction,
        fold=fold if has_key else None,
        error=error,
    )


def _rate(found: Measured) -> float | None:
    """One moment has no rate."""
    if found.first_ms is None or found.last_ms is None or found.last_ms <= found.first_ms:
        return None
    return round(found.messages * 1000 / (found.last_ms - found.first_ms), 6)


def _compaction(listed: Listed) -> Compaction:
    """An offset counts what lies before it: what a snapshot has dropped."""
    before = parse_offset(listed.earliest_offset) if listed.earliest_offset else (0, 0)
    has = listed.snapshot_offset is not None
    return Compaction(*before, int(has), (listed.snapshot_bytes or 0) if has else 0)


def _together(one: Compaction, other: Compaction) -> Compaction:
    return Compaction(
        one.messages + other.messages,
        one.bytes + other.bytes,
        one.snapshots + other.snapshots,
        one.snapshot_bytes + other.snapshot_bytes,
    )
