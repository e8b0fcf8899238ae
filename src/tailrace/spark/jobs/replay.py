"""
`replay`: sends a table of `archive` to streams: each message once, in order, unchanged.

Rule 1: the rows to send are fixed before any is sent. A replay has rounds; each starts by storing
its last message of every stream. An interrupted round is sent again as a whole, with the same rows
in the same requests, and the server stores those it does not have (§5.2.1). Rows that the table
gained meanwhile belong to the next round. Without stored bounds, a table that grew would be divided
into other requests under the same numbers, and the server would drop rows as duplicates.

Rule 2: all rows of a stream are in one of a fixed number of partitions, by a hash of its name: the
producer of a partition is named after its number.

    <table>/_tailrace/replays/{replay id}/replay.json     the parameters of the replay
    <table>/_tailrace/replays/{replay id}/{round}/        the bounds of the round, a row per stream
    <table>/_tailrace/replays/{replay id}/{round}.done

A run without new rows sends nothing. Missing streams are created with the content type of their
rows, which keeps the boundaries of messages; the target numbers the messages itself.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tailrace.spark.jobs.archive import PARTITION_BY
from tailrace.spark.jobs.parameters import takes
from tailrace.spark.jobs.replay_plan import (
    PARTITIONS,
    ReplayAmbiguous,
    ReplayChanged,
    ReplayPlan,
    ReplayUnsupported,
    agree,
    safe_name,
)
from tailrace.spark.options import ConnectionOptions, data_source_options
from tailrace.spark.tables import open_table
from tailrace.spark.tables.files import alone, local_path, sync_file, write_json

__all__ = [
    "ReplayAmbiguous",
    "ReplayChanged",
    "ReplayJob",
    "ReplayResult",
    "ReplayUnsupported",
    "replay",
]

# `total` counts the messages of all rounds, `messages` those of this one, which follow `after`.
_BOUNDS: Final = "bucket string, stream string, last long, total long, after long, messages long"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What one run sent; some of it may have been stored before."""

    messages: int = 0
    streams: int = 0
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class ReplayJob(ConnectionOptions):
    """
    The parameters of `replay`.

    Args:
        replay_id: Rows sent under one id are stored once.
        bucket: The bucket of all streams; by default, the buckets in the table.
        where: A condition on the rows, in SQL.
        partitions: The number of producers that share the streams; by default, as before, or 8.
        ttl_s: The time to live of streams that are created.
    """

    table: str | Path
    replay_id: str
    format: str = "parquet"
    bucket: str | None = None
    where: str | None = None
    partitions: int | None = None
    ttl_s: int | None = None
    table_options: Mapping[str, Any] = field(default_factory=dict)


@takes(ReplayJob)
def replay(spark: SparkSession, job: ReplayJob) -> ReplayResult:
    """
    Send the rows of a table to their streams.

    Raises:
        ReplayChanged: The replay id was used with another table, server, bucket or condition.
        ReplayAmbiguous: Two streams of the table would become one.
        ReplayUnsupported: Messages of the table have no numbers.
        TableMissing, TableMismatch: There is no such table.
    """
    path = local_path(job.table)
    source = open_table(
        job.format, path, partition_by=PARTITION_BY, create=False, **job.table_options
    )
    if source.schema() is None:
        return ReplayResult()
    directory = path / "_tailrace" / "replays" / safe_name(job.replay_id)
    given = ReplayPlan(job.replay_id, job.url, job.bucket, job.where, job.partitions or PARTITIONS)
    with alone(directory / "lock"):
        plan = agree(directory, given, job.partitions)
        rows = source.read(spark)
        if job.where is not None:
            rows = rows.where(job.where)
        writing = data_source_options(job, ttl=job.ttl_s)
        return _ReplayRun(spark, directory, plan, rows, writing).run()


@dataclass(frozen=True)
class _ReplayRun:
    """One run: the interrupted round of an earlier run, then the new rows."""

    _spark: SparkSession
    _directory: Path
    _plan: ReplayPlan
    _rows: DataFrame
    _writing: dict[str, str]

    def run(self) -> ReplayResult:
        done = ReplayResult()
        number = sum(1 for _ in self._directory.glob("*.done"))
        if (self._directory / str(number)).is_dir():
            done = self._send(number, done)
            number += 1
        if self._store_bounds(number):
            done = self._send(number, done)
        return done

    def _store_bounds(self, number: int) -> bool:
        """Store the bounds of the next round; false if there are no new rows."""
        streams = self._rows.groupBy("bucket", "stream").agg(
            F.min("message").alias("first"), F.max("message").alias("last"),
            F.count("*").alias("total"), F.count("message").alias("numbered"),
        ).cache()  # fmt: skip
        try:
            _check_numbered(streams)
            _check_single(streams, self._rows)
            if self._plan.bucket is not None:
                _check_apart(streams)
            sent = self._sent(number)
            bounds = streams.join(sent, _same_stream(streams, sent), "left").where(
                sent["last"].isNull() | (streams["last"] > sent["last"])
            )
            kept = bounds.select(
                streams["bucket"], streams["stream"], streams["last"], streams["total"],
                F.coalesce(sent["last"], F.lit(-1)).alias("after"),
                (streams["total"] - F.coalesce(sent["total"], F.lit(0))).alias("messages"),
            )  # fmt: skip
            return self._keep(number, kept)
        finally:
            streams.unpersist()

    def _sent(self, number: int) -> DataFrame:
        """The bounds of all earlier rounds."""
        if number == 0:
            return self._spark.createDataFrame([], _BOUNDS)
        rounds = [str(self._directory / str(earlier)) for earlier in range(number)]
        return (
            self._spark.read.schema(_BOUNDS)
            .parquet(*rounds)
            .groupBy("bucket", "stream")
            .agg(F.max("last").alias("last"), F.max("total").alias("total"))
        )

    def _keep(self, number: int, bounds: DataFrame) -> bool:
        """Store the bounds atomically (rule 1)."""
        temporary = self._directory / f".{number}"
        shutil.rmtree(temporary, ignore_errors=True)
        bounds.coalesce(1).write.parquet(str(temporary))
        if self._spark.read.schema(_BOUNDS).parquet(str(temporary)).isEmpty():
            shutil.rmtree(temporary)
            return False
        for file in temporary.iterdir():
            sync_file(file)
        temporary.rename(self._directory / str(number))
        sync_file(self._directory)
        return True

    def _send(self, number: int, done: ReplayResult) -> ReplayResult:
        bounds = self._spark.read.schema(_BOUNDS).parquet(str(self._directory / str(number)))
        count = bounds.agg(F.sum("messages"), F.count("*"), F.count("bucket")).first()
        assert count is not None
        messages, streams, with_bucket = count
        rows = self._round(bounds)
        if self._plan.bucket is not None:
            self._write(number, rows.withColumn("bucket", F.lit(self._plan.bucket)))
        else:
            if with_bucket:
                self._write(number, rows.where("bucket is not null"))
            if with_bucket < streams:
                # Streams of the base surface have no buckets.
                self._write(number, rows.where("bucket is null").drop("bucket"))
        write_json(self._directory / f"{number}.done", {"messages": messages, "streams": streams})
        return ReplayResult(done.messages + messages, done.streams + streams, done.rounds + 1)

    def _round(self, bounds: DataFrame) -> DataFrame:
        """The rows of a round."""
        rows = self._rows
        is_in = (rows["message"] > bounds["after"]) & (rows["message"] <= bounds["last"])
        chosen = rows.join(bounds, _same_stream(rows, bounds) & is_in)
        names = ("bucket", "stream", "content_type", "message", "value")
        return chosen.select(*(rows[name] for name in names))

    def _write(self, number: int, rows: DataFrame) -> None:
        by = ("bucket", "stream") if "bucket" in rows.columns else ("stream",)
        (
            rows.repartition(self._plan.partitions, *by)
            .write.format("tailrace")
            .options(**self._writing, sinkId=self._plan.replay_id, batchId=str(number))
            .options(orderBy="message", createStreams="true", createBuckets="true")
            .mode("append")
            .save()
        )


def _same_stream(one: DataFrame, other: DataFrame) -> Column:
    # The bucket is null on the base surface, and null is not equal to null.
    return one["bucket"].eqNullSafe(other["bucket"]) & (one["stream"] == other["stream"])


def _check_numbered(streams: DataFrame) -> None:
    """Rows are selected and ordered by their numbers."""
    without = streams.where("numbered < total").first()
    if without is not None:
        raise ReplayUnsupported(without["stream"])


def _check_single(streams: DataFrame, rows: DataFrame) -> None:
    """
    Check that no stream was deleted and created again.

    More messages than numbers: some number occurs twice. Otherwise, a message whose offset does
    not follow the previous one, and which is older: a clock that was set back leaves no such gap.
    """
    twice = streams.where("total > last - first + 1").first()
    if twice is None:
        order = Window.partitionBy("bucket", "stream").orderBy("message")
        is_older = rows["time"] < F.lag(rows["time"]).over(order)
        is_apart = rows["offset"] != F.lag(rows["next_offset"]).over(order)
        found = rows.select("stream", (is_older & is_apart).alias("is_other"))
        twice = found.where("is_other").first()
    if twice is not None:
        raise ReplayAmbiguous(twice["stream"])


def _check_apart(streams: DataFrame) -> None:
    """Check that no two buckets have a stream of the same name, if all go to one bucket."""
    named = streams.groupBy("stream").agg(F.collect_list(F.struct("bucket")).alias("of"))
    alike = named.where(F.size("of") > 1).first()
    if alike is not None:
        raise ReplayAmbiguous(alike["stream"], tuple(of["bucket"] for of in alike["of"]))
