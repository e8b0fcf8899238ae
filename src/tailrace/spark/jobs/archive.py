"""
`archive`: the messages of a bucket as a table, one row each, exactly once.

Columns: bucket, stream, message, offset, next_offset, time, content_type, value, and day, the UTC
date of `time`. Partitioned by bucket and day. Archived are messages alone: streams that are empty,
closing, snapshots and lifetimes are not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark.jobs.stream_to_table import (
    Batch,
    Selection,
    default_checkpoint,
    follow,
    read_stream,
)
from tailrace.spark.tables import Committed, Table, open_table
from tailrace.spark.tables.base import SMALL_FILES_MIN
from tailrace.spark.tables.files import local_path
from tailrace.spark.tables.values import nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["COLUMNS", "PARTITION_BY", "ArchiveResult", "archive"]

COLUMNS: Final = (
    *("bucket", "stream", "message", "offset", "next_offset", "time", "content_type", "value"),
    "day",
)
PARTITION_BY: Final = ("bucket", "day")
COMPACT_EVERY: Final = 50
"""Batches, where it goes on for ever."""
# By whole days since 1970: `to_date` would go by the session's time zone.
_DAY: Final = "date_from_unix_date(cast(unix_micros(time) div 86400000000 as int)) as day"


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What one run added to the table."""

    batches: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    compacted: int = 0
    """Small files that were written together."""


def archive(
    spark: "SparkSession",
    *,
    url: str,
    table: str | Path,
    bucket: str | None = None,
    streams: tuple[str, ...] = (),
    prefix: str = "",
    pattern: str | None = None,
    format: str = "parquet",
    checkpoint: str | Path | None = None,
    every_s: float | None = None,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    compact_files: int = SMALL_FILES_MIN,
    fail_on_data_loss: bool = True,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
    table_options: Mapping[str, Any] | None = None,
    rows: "DataFrame | None" = None,
    stopped: Callable[[], bool] = lambda: False,
    at: Callable[[str], None] = nothing,
) -> ArchiveResult:
    """
    Add to a table what it does not have yet of a bucket, or of single streams by their paths.

    Args:
        table: A local directory. Several buckets of one server can share it.
        format: parquet, iceberg or delta.
        checkpoint: How far it is; in the table's directory, unless given.
        every_s: Go on for ever, with a batch so often; without it, it ends when everything is
            there that was at its start.
        max_messages, max_bytes: A batch has at most so much.
        compact_files: Small files are written together where a partition has so many; 0: never.
        table_options: Of Iceberg: `catalog` and `identifier`, see `open_table`.
        rows: A streaming DataFrame of the source's columns, in place of the source.
        stopped: Asked now and then whether to end, where it goes on for ever.
        at: Told of each step of a commit.

    Raises:
        BatchDiffers, CheckpointTaken, SourceTaken, SourceChanged: The checkpoint does not belong
            to the table.
        TableError: The table cannot be written.
    """
    selection = Selection(
        url=url, bucket=bucket, streams=streams, prefix=prefix, pattern=pattern,
        fail_on_data_loss=fail_on_data_loss, token=token, headers=headers or {},
        timeout_s=timeout_s,
    )  # fmt: skip
    where = local_path(table)
    target = open_table(format, where, partition_by=PARTITION_BY, at=at, **(table_options or {}))
    if rows is None:
        limits = {"maxMessagesPerTrigger": max_messages, "maxBytesPerTrigger": max_bytes}
        rows = read_stream(spark, selection, **limits)
    run = _Run(target, selection.describe(), compact_files, every_s is not None)
    follow(
        rows.selectExpr(*COLUMNS[:-1], _DAY),
        checkpoint or default_checkpoint(where, selection),
        target,
        run.take,
        every_s=every_s,
        stopped=stopped,
    )
    run.compact(spark)
    return run.result()


class _Run:
    """Takes batches, and counts."""

    def __init__(self, table: Table, source: str, compact_files: int, is_endless: bool) -> None:
        self._table = table
        self._source = source
        self._compact_files = compact_files
        self._is_endless = is_endless
        self._done: list[Committed] = []
        self._compacted = 0

    def take(self, frame: "DataFrame", batch: Batch) -> None:
        self._table.application = batch.application
        done = self._table.commit(batch.batch_id, frame, source=self._source, mark=batch.mark)
        if done.new:
            self._done.append(done)
        if self._is_endless and batch.batch_id % COMPACT_EVERY == COMPACT_EVERY - 1:
            self.compact(frame.sparkSession)

    def compact(self, spark: "SparkSession") -> None:
        if self._compact_files:
            self._compacted += self._table.compact(spark, files_min=self._compact_files).before

    def result(self) -> ArchiveResult:
        done = self._done
        return ArchiveResult(
            batches=len(done),
            rows=sum(one.rows for one in done),
            files=sum(one.files for one in done),
            bytes=sum(one.bytes for one in done),
            compacted=self._compacted,
        )
