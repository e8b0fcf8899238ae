"""
`mirror`: the streams of one server on another one, each message once, in order, as it was.

Rule 1: all messages of a stream go through one partition, in the order of their numbers, whatever
number of tasks read them: rows are distributed by their stream's name over a fixed number of
partitions. A partition's producer is named after its number, so this number is kept in the
checkpoint, and a restart with another one is refused: a batch that is sent again would go
through other producers, and be stored twice.

Rule 2: types are kept, and with them what a message is; JSON or not, each row is one message.

Mirrored: messages, content types, streams that are empty, closing. Not mirrored: what lies before
the earliest message that is retained, and the snapshot that covers it; offsets (the target numbers
its messages itself), commit times, producers, lifetimes (TTL) and deletions: a stream that is
deleted or expires at the source stays at the target. The target is written to by its mirror alone.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from tailrace.client import Client, Conflict
from tailrace.exceptions import ExitCode, TailraceError
from tailrace.spark.jobs.mirror.lifecycle import Settling
from tailrace.spark.options import Connection, read_options
from tailrace.spark.source.catalog import connect, is_tailrace
from tailrace.spark.source.read_positions import Marks, load_marks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PARTITIONS", "MirrorChanged", "MirrorResult", "MirrorUnsupported", "mirror"]

PARTITIONS: Final = 8
_NOTE: Final = "tailrace-mirror"
_LOOK_EVERY_S: Final = 0.5
# Of a source or sink.
Options = dict[str, str]


class MirrorChanged(TailraceError):
    """The checkpoint belongs to a mirror with another configuration."""

    message = (
        "the mirror of checkpoint {checkpoint!r} has {name} {before!r}, not {now!r}: "
        "keep that, or use another checkpoint and target bucket"
    )
    exit_code = ExitCode.CONFLICT
    checkpoint: str
    name: str
    before: object
    now: object


class MirrorUnsupported(TailraceError):
    """The source does not number its messages, so their order would be lost."""

    message = (
        "{url} does not number its messages: the source of a mirror must be a Tailrace server,"
        " and streams must be named by their paths, not by URLs"
    )
    url: str


@dataclass(frozen=True, slots=True)
class MirrorResult:
    """What one run did."""

    batches: int
    messages: int
    created: int
    """Streams that were made at the target because they are empty."""
    closed: int


@dataclass(frozen=True, slots=True)
class _Setup:
    """What must not change between two runs."""

    partitions: int
    bucket: str | None
    target_bucket: str | None
    target_url: str
    """Another server has none of what was mirrored before."""


def mirror(
    spark: "SparkSession",
    *,
    url: str,
    target_url: str,
    checkpoint: str,
    bucket: str | None = None,
    target_bucket: str | None = None,
    streams: tuple[str, ...] = (),
    prefix: str = "",
    pattern: str | None = None,
    partitions: int | None = None,
    every_s: float | None = None,
    max_messages: int | None = None,
    min_partitions: int | None = None,
    fail_on_data_loss: bool = True,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    target_token: str | None = None,
    target_headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
    stopped: Callable[[], bool] = lambda: False,
) -> MirrorResult:
    """
    Bring the streams of a bucket, or single ones by their paths, to another server.

    Args:
        checkpoint: A directory that keeps how far it is; the next run goes on from there.
        target_bucket: Where they go; a bucket of the same name, unless given. It is made if it is
            not there.
        partitions: Over so many producers streams are distributed; 8, or what the checkpoint has.
        every_s: Go on for ever, with a batch so often; without it, it ends when everything is
            there that was at its start.
        max_messages: A batch has at most so many.
        min_partitions: Read with at least so many tasks.
        stopped: Asked now and then whether to end, where it goes on for ever.

    Raises:
        MirrorChanged: The checkpoint is of a mirror with another setup.
        MirrorUnsupported: The source is another server, whose messages have no numbers.
    """
    source = Connection(url=url, token=token, headers=headers or {}, timeout_s=timeout_s)
    target = Connection(
        url=target_url, token=target_token, headers=target_headers or {}, timeout_s=timeout_s
    )
    target_bucket = target_bucket or bucket
    chosen = {"bucket": bucket, "prefix": prefix, "pattern": pattern}
    reading = _options(
        source, chosen, maxMessagesPerTrigger=max_messages, minPartitions=min_partitions
    )
    if streams:
        reading["streams"] = json.dumps(streams)
    reading["failOnDataLoss"] = str(fail_on_data_loss).lower()
    writing = _options(target, {"bucket": target_bucket})
    with connect(source) as there, connect(target) as here:
        _check_numbered(there, streams)
        setup = _agree(spark, checkpoint, partitions, bucket, target_bucket, target_url)
        _make_bucket(here, target_bucket)
        settling = Settling(there, here, read_options(reading), target_bucket)
        rows = _rows(spark, reading, setup)
        query = _start(rows, writing, checkpoint, every_s)
        try:
            return _follow(spark, query, settling, checkpoint, stopped)
        finally:
            query.stop()


def _options(connection: Connection, chosen: Mapping[str, str | None], **more: Any) -> Options:
    """Options of the source or the sink; those that are not given are left out."""
    found = {
        "url": connection.url,
        "token": connection.token,
        "headers": json.dumps(dict(connection.headers)) if connection.headers else None,
        "timeout": connection.timeout_s,
        **chosen,
        **more,
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _check_numbered(source: Client, streams: tuple[str, ...]) -> None:
    """Rule 1 needs the numbers of messages, which only our server tells."""
    for stream in streams:
        if "://" in stream:
            # It may lie anywhere, and is read as any server's.
            raise MirrorUnsupported(stream)
    if not is_tailrace(source):
        raise MirrorUnsupported(source.url)


def _make_bucket(client: Client, bucket: str | None) -> None:
    if bucket is not None:
        with suppress(Conflict):
            client.bucket(bucket).create()


def _rows(spark: "SparkSession", reading: Options, setup: _Setup) -> "DataFrame":
    """Rule 1: one partition a stream. The sink sorts what it gets there."""
    from pyspark.sql import functions as F

    rows = spark.readStream.format("tailrace").options(**reading).load()
    return rows.select(
        F.lit(setup.target_bucket).cast("string").alias("bucket"),
        "stream",
        "content_type",
        "message",
        "value",
    ).repartition(setup.partitions, "stream")


def _start(
    rows: "DataFrame", writing: Options, checkpoint: str, every_s: float | None
) -> "StreamingQuery":
    writer = (
        rows.writeStream.format("tailrace")
        .options(**writing, createStreams="true", orderBy="message")
        .option("checkpointLocation", checkpoint)
    )
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{max(1, round(every_s * 1000))} milliseconds").start()


def _follow(
    spark: "SparkSession",
    query: "StreamingQuery",
    settling: Settling,
    checkpoint: str,
    stopped: Callable[[], bool],
) -> MirrorResult:
    """Settle after batches, until the query ends."""
    seen: dict[int, int] = {}
    settled: str | None = None
    while not (ended := query.awaitTermination(_LOOK_EVERY_S)) and not stopped():  # type: ignore[arg-type]
        end = _look(query, seen)
        if end is not None and end != settled:
            settling.settle(_marks(end))
            settled = end
    _look(query, seen)
    if ended:
        settling.settle(_committed(spark, checkpoint))
    batches = [count for count in seen.values() if count]
    return MirrorResult(len(batches), sum(batches), settling.created, settling.closed)


def _look(query: "StreamingQuery", seen: dict[int, int]) -> str | None:
    """Count the messages of the batches since the last look; where the last of them ended."""
    last = query.lastProgress
    if last is None:
        return None
    # All of them only where some were missed: each holds the marks of every stream.
    missed = last["batchId"] > max(seen, default=-1) + 1
    for progress in query.recentProgress if missed else (last,):
        batch, count = progress["batchId"], progress["numInputRows"]
        # A query that waits tells of its next batch, which has nothing yet.
        seen[batch] = max(seen.get(batch, 0), count)
    end: str | None = last["sources"][0]["endOffset"]
    return end


def _marks(offset: Any) -> Marks:
    return load_marks(json.loads(offset) if isinstance(offset, str) else offset) if offset else {}


# -- what the checkpoint keeps -------------------------------------------------------------------


def _committed(spark: "SparkSession", checkpoint: str) -> Marks:
    """Where the last batch ended that was committed, as Spark has noted it."""
    commits = _numbers(spark, f"{checkpoint}/commits")
    if not commits:
        return {}
    lines = spark.read.text(f"{checkpoint}/offsets/{max(commits)}", wholetext=True).first()
    assert lines is not None
    return _marks(lines[0].splitlines()[2])


def _numbers(spark: "SparkSession", directory: str) -> list[int]:
    """The batches of a log; files in the making have names of another form."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    try:
        files = spark.read.text(directory).select(F.col("_metadata.file_name")).distinct()
        return [int(name) for (name,) in files.collect() if name.isdecimal()]
    except AnalysisException:
        return []


def _agree(
    spark: "SparkSession",
    checkpoint: str,
    partitions: int | None,
    bucket: str | None,
    target_bucket: str | None,
    target_url: str,
) -> _Setup:
    """The setup that the checkpoint has, or from now on has."""
    note = f"{checkpoint}/{_NOTE}"
    found = _noted(spark, note)
    if found is None:
        setup = _Setup(partitions or PARTITIONS, bucket, target_bucket, target_url)
        rows = spark.createDataFrame([(json.dumps(asdict(setup)),)], "value string")
        rows.coalesce(1).write.mode("overwrite").text(note)
        return setup
    asked = _Setup(partitions or found.partitions, bucket, target_bucket, target_url)
    for name, before in asdict(found).items():
        if before != getattr(asked, name):
            raise MirrorChanged(checkpoint, name, before, getattr(asked, name))
    return found


def _noted(spark: "SparkSession", note: str) -> _Setup | None:
    from pyspark.errors import AnalysisException

    try:
        line = spark.read.text(note).first()
    except AnalysisException:
        return None
    # A note that was begun and not finished: no query has begun either.
    return None if line is None else _Setup(**json.loads(line[0]))
