"""
`mirror`: copies the streams of one server to another, each message once, in order, unchanged.

Rule 1: all messages of a stream go through one partition, in the order of their numbers, however
many tasks read them: rows are distributed by stream name over a fixed number of partitions. The
producer of a partition is named after its number, so the number of partitions is kept in the
checkpoint, and a restart with another one is refused: a batch that is sent again would go through
other producers, and be stored twice.

Rule 2: content types are kept, and with them the boundaries of messages: each row is one message.

Mirrored: messages, content types, empty streams, closing. Not mirrored: messages that are no longer
retained and the snapshot that covers them, offsets (the target numbers its messages itself),
commit times, producers, lifetimes (TTL) and deletions: a stream that is deleted or expires at the
source stays at the target. Only the mirror may write to the target.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.client import Client, Conflict
from tailrace.exceptions import ExitCode, TailraceError
from tailrace.spark.connection import connect, is_tailrace_server
from tailrace.spark.jobs.mirror_lifecycle import LifecycleMirror
from tailrace.spark.jobs.parameters import StreamSelection, takes
from tailrace.spark.jobs.streaming_query import POLL_INTERVAL_S, run_query
from tailrace.spark.options import ConnectionOptions, data_source_options, read_options
from tailrace.spark.progress import count_messages
from tailrace.spark.source.read_positions import ReadPositions, load_positions

__all__ = ["MirrorChanged", "MirrorJob", "MirrorResult", "MirrorUnsupported", "mirror"]

PARTITIONS: Final = 8
_CONFIGURATION: Final = "tailrace-mirror"


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
    """The number of empty streams that were created at the target."""
    closed: int


@dataclass(frozen=True, kw_only=True)
class MirrorJob(StreamSelection):
    """
    The parameters of `mirror`.

    Args:
        checkpoint: The directory of the checkpoint; the next run continues from it.
        target_bucket: By default, a bucket of the same name. It is created if it does not exist.
        partitions: The number of producers that share the streams; by default that of the
            checkpoint, or 8.
        every_s: Run a batch this often, and do not end; by default the job ends when it has copied
            all messages that existed at its start.
        max_messages: The largest number of messages of a batch.
        min_partitions: The smallest number of tasks that read.
        stopped: Returns whether to end; called regularly.
    """

    target_url: str
    checkpoint: str
    target_bucket: str | None = None
    partitions: int | None = None
    every_s: float | None = None
    max_messages: int | None = None
    min_partitions: int | None = None
    target_token: str | None = None
    target_headers: Mapping[str, str] = field(default_factory=dict)
    stopped: Callable[[], bool] = lambda: False


@takes(MirrorJob)
def mirror(spark: SparkSession, job: MirrorJob) -> MirrorResult:
    """
    Copy the streams of a bucket, or single streams by their paths, to another server.

    Raises:
        MirrorChanged: The checkpoint is of a mirror with another configuration.
        MirrorUnsupported: The source is not a Tailrace server, so its messages have no numbers.
    """
    target_bucket = job.target_bucket or job.bucket
    target = ConnectionOptions(
        url=job.target_url,
        token=job.target_token,
        headers=job.target_headers,
        timeout_s=job.timeout_s,
    )
    reading = job.source_options(
        maxMessagesPerTrigger=job.max_messages, minPartitions=job.min_partitions
    )
    writing = data_source_options(
        target, bucket=target_bucket, createStreams="true", orderBy="message"
    )
    with connect(job) as source_client, connect(target) as target_client:
        _check_numbered(source_client, job.streams)
        partitions = _agree(spark, job, target_bucket)
        if target_bucket is not None:
            with suppress(Conflict):
                target_client.bucket(target_bucket).create()
        lifecycle = LifecycleMirror(
            source_client, target_client, read_options(reading), target_bucket
        )
        rows = spark.readStream.format("tailrace").options(**reading).load()
        # Rule 1: one partition per stream. The sink sorts the rows of its partition.
        rows = rows.select("stream", "content_type", "message", "value")
        writer = rows.repartition(partitions, "stream").writeStream.format("tailrace")
        return run_query(
            writer.options(**writing),
            job.checkpoint,
            job.every_s,
            lambda query: _follow(spark, query, lifecycle, job),
        )


def _check_numbered(source: Client, streams: tuple[str, ...]) -> None:
    """Rule 1 needs the numbers of messages, which only a Tailrace server has."""
    for stream in streams:
        if "://" in stream:
            # It may be on any server, and is read like a stream of another server.
            raise MirrorUnsupported(stream)
    if not is_tailrace_server(source):
        raise MirrorUnsupported(source.url)


def _follow(
    spark: SparkSession,
    query: StreamingQuery,
    lifecycle: LifecycleMirror,
    job: MirrorJob,
) -> MirrorResult:
    """Mirror the lifecycle of streams after batches, until the query ends."""
    counts: dict[int, int] = {}
    mirrored: str | None = None
    while not (ended := query.awaitTermination(POLL_INTERVAL_S)) and not job.stopped():  # type: ignore[arg-type]
        last = count_messages(query, counts)
        end = None if last is None else last["sources"][0]["endOffset"]
        if end is not None and end != mirrored:
            lifecycle.update(_positions(end))
            mirrored = end
    count_messages(query, counts)
    if ended:
        lifecycle.update(_committed(spark, job.checkpoint))
    batches = [count for count in counts.values() if count]
    return MirrorResult(len(batches), sum(batches), lifecycle.created, lifecycle.closed)


def _positions(offset: Any) -> ReadPositions:
    if not offset:
        return {}
    return load_positions(json.loads(offset) if isinstance(offset, str) else offset)


# -- the checkpoint, which may be on any file system of Spark ------------------------------------


def _committed(spark: SparkSession, checkpoint: str) -> ReadPositions:
    """The positions at the end of the last committed batch."""
    commits = _numbers(spark, f"{checkpoint}/commits")
    if not commits:
        return {}
    lines = spark.read.text(f"{checkpoint}/offsets/{max(commits)}", wholetext=True).first()
    assert lines is not None
    return _positions(lines[0].splitlines()[2])


def _numbers(spark: SparkSession, directory: str) -> list[int]:
    """The batches of a log; temporary files have names of another form."""
    try:
        files = spark.read.text(directory).select(F.col("_metadata.file_name")).distinct()
        return [int(name) for (name,) in files.collect() if name.isdecimal()]
    except AnalysisException:
        return []


def _agree(spark: SparkSession, job: MirrorJob, target_bucket: str | None) -> int:
    """The number of partitions. The parameters that must not change are in the checkpoint."""
    file = f"{job.checkpoint}/{_CONFIGURATION}"
    found = _stored(spark, file)
    given: dict[str, Any] = {
        "partitions": job.partitions or (found or {}).get("partitions", PARTITIONS),
        "bucket": job.bucket,
        "target_bucket": target_bucket,
        "target_url": job.target_url,
    }
    if found is None:
        rows = spark.createDataFrame([(json.dumps(given),)], "value string")
        rows.coalesce(1).write.mode("overwrite").text(file)
    for name, before in (found or {}).items():
        if before != given[name]:
            raise MirrorChanged(job.checkpoint, name, before, given[name])
    partitions: int = given["partitions"]
    return partitions


def _stored(spark: SparkSession, file: str) -> dict[str, Any] | None:
    try:
        line = spark.read.text(file).first()
    except AnalysisException:
        return None
    # None: the file was not completed, so no query has started.
    return None if line is None else json.loads(line[0])
