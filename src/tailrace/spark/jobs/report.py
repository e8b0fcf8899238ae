"""
`report`: what is in buckets, by stream: how much, since when, how fast, by whom, and what snapshots
have saved.

Listings say which streams there are, and what snapshots have dropped: an offset counts the messages
and the bytes before it. Sizes, times and producers are read by Spark's tasks, which measure where
they read and hand on a few numbers a stream (`report_parts`); contents stay on the server, unless a
key is to be looked for in them. Each stream is read up to the tail that its listing had: a report
of a server that is written to is exact for the moment of its listing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from tailrace.client import Client, Listed, Place, StreamName
from tailrace.spark.jobs.report_parts import PARTS_SQL, Meter, columns_for, keys_at
from tailrace.spark.jobs.report_values import Measured, Report, summarize
from tailrace.spark.options import Connection
from tailrace.spark.progress import Watch
from tailrace.spark.rows import Range, read_rows
from tailrace.spark.source.catalog import connect, resolve
from tailrace.spark.source.offset_ranges import Span, assign, split_points

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PERIODS_MS", "BucketPlan", "ReportUnsupported", "plan", "report"]

PERIODS_MS: Final = {"hour": 3_600_000, "day": 86_400_000}
PARTITION_BYTES: Final = 64 << 20
# So many bars still fit beside each other.
_HOURS_MAX: Final = 72
_BUSIEST: Final = 5


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """The streams of a bucket that are looked at."""

    bucket: str
    streams: Sequence[Listed]

    def spans(self) -> Iterator[Span]:
        """What there is to read; nothing of a stream is one too."""
        for listed in self.streams:
            if not listed.next_offset:
                raise ReportUnsupported(self.bucket)
            yield Span(listed.stream_id, listed.earliest_offset or "-1", listed.next_offset)

    @property
    def messages(self) -> int:
        return sum(span.messages for span in self.spans())

    @property
    def bytes(self) -> int:
        return sum(span.bytes for span in self.spans())


class ReportUnsupported(Exception):
    """A server whose listings do not say where streams end."""

    def __init__(self, bucket: str) -> None:
        super().__init__(bucket)
        self.bucket = bucket

    def __str__(self) -> str:
        return (
            f"the listing of bucket {self.bucket!r} does not say where its streams end: "
            "a report needs a Tailrace server"
        )


def plan(
    client: Client, buckets: Sequence[str], prefix: str = "", pattern: str | None = None
) -> list[BucketPlan]:
    """
    Look which streams there are.

    Raises:
        NotFound: There is no such bucket.
    """
    return [
        BucketPlan(bucket, [
            listed
            for listed in client.bucket(bucket).streams(prefix=prefix)
            if pattern is None or fnmatchcase(listed.stream_id, pattern)
        ])
        for bucket in buckets
    ]  # fmt: skip


def report(
    spark: "SparkSession",
    *,
    url: str,
    buckets: Sequence[str],
    prefix: str = "",
    pattern: str | None = None,
    key: str | None = None,
    period: str | None = None,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
    watch: Watch | None = None,
) -> Report:
    """
    Measure the streams of buckets.

    Args:
        prefix, pattern: Only streams whose ids begin so, or match, as `orders-*`.
        key: Also say what keeping only the last message of each key would save: a path into JSON
            messages, as `/id`. Their contents are read then.
        period: Growth by `hour` or `day`; hours for up to three days, unless given.

    Raises:
        NotFound: There is no such bucket.
        ReportUnsupported: The server is another one, whose listings do not say enough.
    """
    connection = Connection(url=url, token=token, headers=headers or {}, timeout_s=timeout_s)
    at_ms = int(time.time() * 1000)
    with connect(connection) as client:
        plans = plan(client, buckets, prefix, pattern)
        tasks = _tasks(client, plans, spark.sparkContext.defaultParallelism)
    period = period or _period(plans)
    reading = _Reading(connection, tasks, PERIODS_MS[period], key)
    return Report(
        url=url,
        at_ms=at_ms,
        period=period,
        key=key,
        **summarize(plans, *_measure(spark, reading, plans, watch), has_key=key is not None),
    )


def _period(plans: Sequence[BucketPlan]) -> str:
    listed = [stream for each in plans for stream in each.streams]
    first = min((stream.created_at_ms for stream in listed), default=0)
    last = max((stream.last_write_at_ms for stream in listed), default=0)
    return "hour" if last - first <= _HOURS_MAX * PERIODS_MS["hour"] else "day"


@dataclass(frozen=True, slots=True)
class _Piece:
    """A range, and whose it is."""

    place: int
    bucket: int
    range: Range


def _tasks(client: Client, plans: Sequence[BucketPlan], cores: int) -> list[list[_Piece]]:
    """Large streams are split, small ones go together."""
    spans: list[Span] = []
    names: list[tuple[int, StreamName]] = []
    for number, each in enumerate(plans):
        for span in each.spans():
            names.append((number, StreamName(each.bucket, span.stream)))
            spans.append(Span(str(len(spans)), span.start, span.end))
    full = [span for span in spans if span.messages]
    points = split_points(full, PARTITION_BYTES, cores)
    places = [
        (at, Place(names[int(full[at].stream)][1], byte=byte))
        for at, bytes_ in points
        for byte in bytes_
    ]
    offsets: dict[int, list[str]] = {}
    for (at, _), offset in zip(
        places, resolve(client, [place for _, place in places]), strict=True
    ):
        offsets.setdefault(at, []).append(offset)
    groups = assign(full, PARTITION_BYTES, cores, lambda at: offsets.get(at, ()))
    return [[_piece(span, names) for span in group] for group in groups]


def _piece(span: Span, names: Sequence[tuple[int, StreamName]]) -> _Piece:
    place = int(span.stream)
    bucket, name = names[place]
    return _Piece(place, bucket, Range(name, span.start, span.end))


@dataclass(frozen=True, slots=True)
class _Reading:
    """What goes to the tasks."""

    connection: Connection
    tasks: list[list[_Piece]]
    period_ms: int
    key: str | None

    def parts(self, count: Callable[[int], object]) -> Callable[[Iterator["pa.RecordBatch"]], Any]:
        def measure(numbers: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            for batch in numbers:
                for number in batch[0].to_pylist():
                    yield from self._read(self.tasks[number], count)

        return measure

    def _read(
        self, pieces: list[_Piece], count: Callable[[int], object]
    ) -> "Iterator[pa.RecordBatch]":
        meter = Meter(
            [piece.place for piece in pieces],
            [piece.bucket for piece in pieces],
            self.period_ms,
            None if self.key is None else keys_at(self.key),
        )
        with connect(self.connection) as client:
            ranges = [piece.range for piece in pieces]
            for found in read_rows(client, ranges, columns_for(self.key)):
                yield from meter.take(found)
                count(getattr(found, "num_rows", 0))
        yield from meter.finish()


def _measure(
    spark: "SparkSession", reading: _Reading, plans: Sequence[BucketPlan], watch: Watch | None
) -> tuple[dict[int, Measured], dict[int, Measured], dict[int, str]]:
    """By stream and by bucket (producers alone) what was measured, and what failed."""
    count = len(reading.tasks)
    if not count:
        return {}, {}, {}
    done = spark.sparkContext.accumulator(0)
    if watch is not None:
        watch.count_by(lambda: done.value)
    numbers = spark.range(0, count, 1, count)
    parts = numbers.mapInArrow(reading.parts(done.add), PARTS_SQL).persist()
    try:
        return _collect(parts)
    finally:
        parts.unpersist()


def _collect(
    parts: "DataFrame",
) -> tuple[dict[int, Measured], dict[int, Measured], dict[int, str]]:
    from pyspark.sql import functions as F

    streams: dict[int, Measured] = {}
    buckets: dict[int, Measured] = {}
    errors: dict[int, str] = {}
    added = (
        parts.where(~F.col("kind").isin("producer", "key"))
        .groupBy("place", "kind", "number", "name")
        .agg(F.sum("messages"), F.sum("bytes"), F.min("least"), F.max("most"))
    )
    for place, kind, number, name, messages, size, least, most in added.toLocalIterator():
        found = streams.setdefault(place, Measured())
        if kind == "size":
            found.add_size(number, most, messages, size)
        elif kind == "period":
            found.add_period(number, messages, size, least, most)
        elif kind == "keyless":
            found.key_bytes += size
        else:
            errors[place] = name
    keys = (
        parts.where("kind = 'key'")
        .groupBy("place", "name")
        .agg(F.max_by("bytes", "most").alias("bytes"))
        .groupBy("place")
        .agg(F.count("*"), F.sum("bytes"))
    )
    for place, count, size in keys.toLocalIterator():
        found = streams.setdefault(place, Measured())
        found.keys += count
        found.key_bytes += size
    producers = parts.where("kind = 'producer'")
    for by, into in (("place", streams), ("number", buckets)):
        for place, count, busiest in _producers(producers, by).toLocalIterator():
            found = into.setdefault(place, Measured())
            found.producer_count = count
            found.producers = {name: messages for messages, name in busiest}
    return streams, buckets, errors


def _producers(parts: "DataFrame", by: str) -> "DataFrame":
    """How many there are, and the busiest."""
    from pyspark.sql import functions as F

    each = parts.groupBy(by, "name").agg(F.sum("messages").alias("messages"))
    ranked = F.sort_array(F.collect_list(F.struct("messages", "name")), asc=False)
    return each.groupBy(by).agg(F.count("*"), F.slice(ranked, 1, _BUSIEST))
