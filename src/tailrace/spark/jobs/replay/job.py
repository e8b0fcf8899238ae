"""
`replay`: a table that `archive` wrote, as streams again: each message once, in order, as it was.

Rule 1: what is sent is fixed before any of it is sent. A replay goes in rounds; each begins with a
note of how far it goes in every stream. A round that was interrupted is sent again whole, with the
same rows in the same requests, and the server stores what it does not have (§5.2.1). Rows that the
table gained in the meantime belong to the next round. Without the note, a table that grew would be
cut into other requests under the same numbers, and the server would drop rows as repeated.

Rule 2: all rows of a stream lie in one of a fixed number of partitions, by a hash of its name: a
partition's producer is named after its number.

    <table>/_tailrace/replays/{replay id}/replay.json     what it sends, and where to
    <table>/_tailrace/replays/{replay id}/{round}/        how far the round goes, a row a stream
    <table>/_tailrace/replays/{replay id}/{round}.done

A run without anything new sends nothing. A stream is made if it is not there, with the content type
that its rows have, which keeps the boundaries of messages; messages get the numbers and offsets of
the target.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark.jobs.archive import PARTITION_BY
from tailrace.spark.jobs.replay.plan import (
    PARTITIONS,
    ReplayAmbiguous,
    ReplayChanged,
    ReplayPlan,
    ReplayUnsupported,
    agree,
    safe_name,
)
from tailrace.spark.tables import open_table
from tailrace.spark.tables.files import alone, local_path, sync_file, write_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "PARTITIONS",
    "ReplayAmbiguous",
    "ReplayChanged",
    "ReplayResult",
    "ReplayUnsupported",
    "replay",
]

# `total` counts from the first round on, `messages` in this one, which begins after `after`.
_BOUNDS: Final = "bucket string, stream string, last long, total long, after long, messages long"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What one run sent; it may have been stored before."""

    messages: int = 0
    streams: int = 0
    rounds: int = 0


def replay(
    spark: "SparkSession",
    *,
    table: str | Path,
    url: str,
    replay_id: str,
    format: str = "parquet",
    bucket: str | None = None,
    where: str | None = None,
    partitions: int | None = None,
    ttl_s: int | None = None,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
    table_options: Mapping[str, Any] | None = None,
) -> ReplayResult:
    """
    Send the rows of a table to the streams that they are of.

    Args:
        replay_id: Names the replay: what was sent under it is never stored again.
        bucket: Where all streams go; the buckets that the table says, unless given.
        where: Which rows, as in SQL.
        partitions: Over so many producers streams are distributed; 8, or as before.
        ttl_s: Seconds that streams live which are made.

    Raises:
        ReplayChanged: The replay id was used with another table, server, bucket or condition.
        ReplayAmbiguous: A stream of the table is two, or two would become one in the bucket.
        ReplayUnsupported: Messages of the table have no numbers.
        TableMissing, TableMismatch: There is no such table.
    """
    path = local_path(table)
    source = open_table(
        format, path, partition_by=PARTITION_BY, create=False, **(table_options or {})
    )
    if source.schema() is None:
        return ReplayResult()
    directory = path / "_tailrace" / "replays" / safe_name(replay_id)
    sending = {
        "url": url, "token": token, "timeout": timeout_s, "ttl": ttl_s,
        "headers": json.dumps(dict(headers)) if headers else None,
    }  # fmt: skip
    given = {name: str(value) for name, value in sending.items() if value is not None}
    asked = ReplayPlan(replay_id, url, bucket, where, partitions or PARTITIONS)
    with alone(directory / "lock"):
        plan = agree(directory, asked, partitions)
        rows = source.read(spark)
        if where is not None:
            rows = rows.where(where)
        return _Replay(spark, directory, plan, rows, given).run()


class _Replay:
    """One run: what an earlier one left, and then what is new."""

    def __init__(
        self,
        spark: "SparkSession",
        directory: Path,
        plan: ReplayPlan,
        rows: "DataFrame",
        sending: dict[str, str],
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._plan = plan
        self._rows = rows
        self._sending = sending

    def run(self) -> ReplayResult:
        done = ReplayResult()
        number = sum(1 for _ in self._directory.glob("*.done"))
        if (self._directory / str(number)).is_dir():
            done = self._send(number, done)
            number += 1
        if self._bound(number):
            done = self._send(number, done)
        return done

    def _bound(self, number: int) -> bool:
        """Note how far the next round goes; false if there is nothing that was not sent."""
        from pyspark.sql import functions as F

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

    def _sent(self, number: int) -> "DataFrame":
        """How far all rounds before this one went."""
        from pyspark.sql import functions as F

        if number == 0:
            return self._spark.createDataFrame([], _BOUNDS)
        rounds = [str(self._directory / str(earlier)) for earlier in range(number)]
        return (
            self._spark.read.schema(_BOUNDS)
            .parquet(*rounds)
            .groupBy("bucket", "stream")
            .agg(F.max("last").alias("last"), F.max("total").alias("total"))
        )

    def _keep(self, number: int, bounds: "DataFrame") -> bool:
        """Rule 1: all of it, or nothing."""
        making = self._directory / f".{number}"
        shutil.rmtree(making, ignore_errors=True)
        bounds.coalesce(1).write.parquet(str(making))
        if self._spark.read.schema(_BOUNDS).parquet(str(making)).isEmpty():
            shutil.rmtree(making)
            return False
        for file in making.iterdir():
            sync_file(file)
        making.rename(self._directory / str(number))
        sync_file(self._directory)
        return True

    def _send(self, number: int, done: ReplayResult) -> ReplayResult:
        from pyspark.sql import functions as F

        bounds = self._spark.read.schema(_BOUNDS).parquet(str(self._directory / str(number)))
        count = bounds.agg(
            F.sum("messages"), F.count("*"), F.count("bucket")
        ).first()  # fmt: skip
        assert count is not None
        messages, streams, with_bucket = count
        rows = self._round(bounds)
        if self._plan.bucket is not None:
            self._write(number, rows.withColumn("bucket", F.lit(self._plan.bucket)))
        else:
            if with_bucket:
                self._write(number, rows.where("bucket is not null"))
            if with_bucket < streams:
                # Of the base surface, which has no buckets.
                self._write(number, rows.where("bucket is null").drop("bucket"))
        write_json(self._directory / f"{number}.done", {"messages": messages, "streams": streams})
        return ReplayResult(done.messages + messages, done.streams + streams, done.rounds + 1)

    def _round(self, bounds: "DataFrame") -> "DataFrame":
        """Rule 2: the same rows in the same partitions, at every run."""
        rows = self._rows
        is_in = (rows["message"] > bounds["after"]) & (rows["message"] <= bounds["last"])
        chosen = rows.join(bounds, _same_stream(rows, bounds) & is_in)
        names = ("bucket", "stream", "content_type", "message", "value")
        return chosen.select(*(rows[name] for name in names))

    def _write(self, number: int, rows: "DataFrame") -> None:
        by = ("bucket", "stream") if "bucket" in rows.columns else ("stream",)
        (
            rows.repartition(self._plan.partitions, *by)
            .write.format("tailrace")
            .options(**self._sending, sinkId=self._plan.replay_id, batchId=str(number))
            .options(orderBy="message", createStreams="true", createBuckets="true")
            .mode("append")
            .save()
        )


def _same_stream(one: "DataFrame", other: "DataFrame") -> "Column":
    # The bucket is null on the base surface, and null is not equal to null.
    return one["bucket"].eqNullSafe(other["bucket"]) & (one["stream"] == other["stream"])


def _check_numbered(streams: "DataFrame") -> None:
    """Rows are chosen and put in order by their numbers."""
    without = streams.where("numbered < total").first()
    if without is not None:
        raise ReplayUnsupported(without["stream"])


def _check_single(streams: "DataFrame", rows: "DataFrame") -> None:
    """
    No stream was deleted and made again.

    More messages than numbers: some number came twice. Otherwise, a message that does not follow
    the one before it, and is older: a clock that was set back breaks no chain of offsets.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    twice = streams.where("total > last - first + 1").first()
    if twice is None:
        order = Window.partitionBy("bucket", "stream").orderBy("message")
        is_older = rows["time"] < F.lag(rows["time"]).over(order)
        is_apart = rows["offset"] != F.lag(rows["next_offset"]).over(order)
        found = rows.select("stream", (is_older & is_apart).alias("is_other"))
        twice = found.where("is_other").first()
    if twice is not None:
        raise ReplayAmbiguous(twice["stream"])


def _check_apart(streams: "DataFrame") -> None:
    """No two streams of several buckets have the same name in the one that they go to."""
    from pyspark.sql import functions as F

    named = streams.groupBy("stream").agg(F.collect_list(F.struct("bucket")).alias("of"))
    alike = named.where(F.size("of") > 1).first()
    if alike is not None:
        raise ReplayAmbiguous(alike["stream"], tuple(of["bucket"] for of in alike["of"]))
