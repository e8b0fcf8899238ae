"""
`materialize`: streams of JSON objects as a typed table.

Columns: `_stream`, `_message`, `_offset`, `_time`, then a column for each field that was ever seen,
and `_rescued`, the fields that fit no column as JSON text. How fields become columns is decided in
`widening`, what fits in `json_rows`. What is no JSON object goes to a table of dead letters, with
the reason.

Rule 1: a batch's schema is kept before the first of its rows is: the same batch again, after a
crash, becomes the same rows.

    <table>/_tailrace/schema/*.json     every schema that the table had, and the batch that made it

Rule 2: both tables skip a batch that they have. A crash between the two is completed by the same
batch again.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.spark.jobs.archive import COMPACT_EVERY
from tailrace.spark.jobs.materialize.json_schema import (
    COLUMNS_MAX,
    EMPTY,
    Struct,
    dump_type,
    keep_longs,
    load_type,
    widen,
)
from tailrace.spark.jobs.materialize.tasks import (
    DEAD_COLUMNS,
    FOUND_COLUMNS,
    find_schema,
    make_rows,
    table_schema,
    tell_dead,
)
from tailrace.spark.jobs.stream_to_table import (
    Batch,
    Selection,
    default_checkpoint,
    follow,
    read_stream,
)
from tailrace.spark.tables import Committed, Table, TableShared, open_table
from tailrace.spark.tables.base import SMALL_FILES_MIN
from tailrace.spark.tables.files import local_path, read_json, write_json
from tailrace.spark.tables.frames import inexact, struct
from tailrace.spark.tables.schemas import Path as ColumnPath
from tailrace.spark.tables.values import nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MaterializeResult", "materialize"]


@dataclass(frozen=True, slots=True)
class MaterializeResult:
    """What one run added."""

    batches: int = 0
    rows: int = 0
    dead_letters: int = 0
    files: int = 0
    bytes: int = 0
    compacted: int = 0
    """Small files that were written together."""


def materialize(
    spark: "SparkSession",
    *,
    url: str,
    table: str | Path,
    bucket: str | None = None,
    dead_letters: str | Path | None = None,
    streams: tuple[str, ...] = (),
    prefix: str = "",
    pattern: str | None = None,
    format: str = "parquet",
    checkpoint: str | Path | None = None,
    every_s: float | None = None,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    columns_max: int = COLUMNS_MAX,
    compact_files: int = SMALL_FILES_MIN,
    fail_on_data_loss: bool = True,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
    table_options: Mapping[str, Any] | None = None,
    rows: "DataFrame | None" = None,
    stopped: Callable[[], bool] = lambda: False,
    at: Callable[[str], None] = nothing,
) -> MaterializeResult:
    """
    Add to a table what it does not have yet of the JSON streams of a bucket, or of single ones.

    Args:
        table: A local directory.
        dead_letters: Another one; the table's name with `-dead-letters`, unless given.
        columns_max: So many columns at most; fields beyond are rescued.

    The others are those of `archive`.

    Raises:
        BatchDiffers, CheckpointTaken, SourceTaken, SourceChanged: The checkpoint does not belong
            to the table.
        TableError: A table cannot be written.
    """
    selection = Selection(
        url=url, bucket=bucket, streams=streams, prefix=prefix, pattern=pattern,
        fail_on_data_loss=fail_on_data_loss, token=token, headers=headers or {},
        timeout_s=timeout_s,
    )  # fmt: skip
    where = local_path(table)
    beside = local_path(dead_letters or where.with_name(f"{where.name}-dead-letters"))
    if beside == where:
        # Whatever is committed second would be skipped.
        raise TableShared(str(where))
    target = open_table(format, where, at=at, **(table_options or {}))
    run = _Run(
        target,
        # In the same format, but Iceberg's catalog is the table's own.
        open_table(format, beside, at=at),
        selection.describe(),
        columns_max,
        compact_files,
        every_s is not None,
    )
    if rows is None:
        limits = {"maxMessagesPerTrigger": max_messages, "maxBytesPerTrigger": max_bytes}
        rows = read_stream(spark, selection, **limits)
    place = checkpoint or default_checkpoint(where, selection)
    follow(rows, place, target, run.take, every_s=every_s, stopped=stopped)
    run.compact(spark)
    return run.result()


class SchemaLog:
    """Rule 1: every schema that the table had, and the batch that made it so."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, application: str, batch_id: int) -> tuple[Struct, bool]:
        """The latest schema, or the one that this batch made: then it is true."""
        entries = sorted(self._directory.glob("*.json"), reverse=True)
        latest: Struct = EMPTY
        for number, file in enumerate(entries):
            entry = read_json(file) or {}
            schema = load_type(entry["schema"])
            assert isinstance(schema, Struct)
            if (entry["application"], entry["batch"]) == (application, batch_id):
                return schema, True
            latest = latest if number else schema
        return latest, False

    def keep(self, application: str, batch_id: int, schema: Struct) -> None:
        number = sum(1 for _ in self._directory.glob("*.json"))
        entry = {"application": application, "batch": batch_id, "schema": dump_type(schema)}
        write_json(self._directory / f"{number:06d}.json", entry)


class _Run:
    """Takes batches, and counts."""

    def __init__(
        self,
        table: Table,
        dead: Table,
        source: str,
        columns_max: int,
        compact_files: int,
        is_endless: bool,
    ) -> None:
        self._tables = table, dead
        self._source = source
        self._columns_max = columns_max
        self._compact_files = compact_files
        self._is_endless = is_endless
        self._log = SchemaLog(table.path / "_tailrace" / "schema")
        self._done: list[tuple[Committed, Committed]] = []
        self._compacted = 0
        # Once there, an integer stays, and with it the column's type.
        self._longs: set[ColumnPath] = set()

    def take(self, frame: "DataFrame", batch: Batch) -> None:
        for table in self._tables:
            table.application = batch.application
        # It is read three times.
        frame.persist()
        try:
            self._done.append(self._commit(frame, batch))
        finally:
            frame.unpersist()
        if self._is_endless and batch.batch_id % COMPACT_EVERY == COMPACT_EVERY - 1:
            self.compact(frame.sparkSession)

    def _commit(self, frame: "DataFrame", batch: Batch) -> tuple[Committed, Committed]:
        """Rule 2."""
        table, dead = self._tables
        schema = self._schema(frame, batch)
        rows = frame.mapInArrow(make_rows(dump_type(schema)), struct(table_schema(schema)))
        letters = frame.mapInArrow(tell_dead, DEAD_COLUMNS)
        dead_done = dead.commit(batch.batch_id, letters, source=self._source, mark=batch.mark)
        done = table.commit(batch.batch_id, rows, source=self._source, mark=batch.mark)
        return done, dead_done

    def _schema(self, frame: "DataFrame", batch: Batch) -> Struct:
        """The schema of a batch: kept, or found and then kept."""
        schema, is_own = self._log.of(batch.application, batch.batch_id)
        if is_own or self._tables[0].committed(batch.batch_id):
            return schema
        task = find_schema(dump_type(schema), self._columns_max)
        found = frame.mapInArrow(task, FOUND_COLUMNS).collect()
        wider = schema
        for row in sorted(found, key=lambda row: int(row["partition"])):
            other = load_type(json.loads(row["schema"]))
            assert isinstance(other, Struct)
            wider = widen(wider, other, columns_max=self._columns_max)
        wider = keep_longs(wider, self._longs)
        if wider != schema:
            wider = self._exact(frame.sparkSession, wider)
        if wider != schema:
            self._log.keep(batch.application, batch.batch_id, wider)
        return wider

    def _exact(self, spark: "SparkSession", wider: Struct) -> Struct:
        """Rule 2 of `widening`: what is stored is not rounded."""
        found = inexact(self._tables[0].read(spark), table_schema(wider))
        self._longs.update(found)
        return keep_longs(wider, found)

    def compact(self, spark: "SparkSession") -> None:
        if self._compact_files:
            for table in self._tables:
                done = table.compact(spark, files_min=self._compact_files)
                self._compacted += done.before

    def result(self) -> MaterializeResult:
        both = [done for pair in self._done for done in pair]
        return MaterializeResult(
            batches=sum(done.new for done, _ in self._done),
            rows=sum(done.rows for done, _ in self._done),
            dead_letters=sum(dead.rows for _, dead in self._done),
            files=sum(done.files for done in both),
            bytes=sum(done.bytes for done in both),
            compacted=self._compacted,
        )
