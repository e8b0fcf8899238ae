"""
`materialize`: streams of JSON objects as a typed table.

Columns: `_stream`, `_message`, `_offset`, `_time`, a column for each field that was ever seen, and
`_rescued`, the fields that match no column, as JSON text. `json_schema` decides the columns of
fields, `json_rows` the conversion of values. A message that is not a JSON object goes to a table of
dead letters, with the reason.

Rule 1: the schema of a batch is stored before its rows. If the batch is repeated after a crash, it
becomes the same rows.

    <table>/_tailrace/schema/*.json     every schema that the table had, and the batch that made it

Rule 2: both tables skip a batch that they have. After a crash between the two commits, repeating
the batch completes it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.spark.jobs.materialize.json_schema import (
    COLUMNS_MAX,
    EMPTY,
    Struct,
    dump_type,
    keep_longs,
    load_struct,
    widen,
)
from tailrace.spark.jobs.materialize.tasks import (
    DEAD_LETTER_COLUMNS,
    FOUND_COLUMNS,
    find_dead_letters,
    find_schema,
    make_rows,
    table_schema,
)
from tailrace.spark.jobs.parameters import takes
from tailrace.spark.jobs.stream_to_table import MicroBatch, TableJob, TableJobResult, TableRun
from tailrace.spark.tables import Committed, Table, TableShared, open_table
from tailrace.spark.tables.files import local_path, read_json, write_json
from tailrace.spark.tables.frames import inexact, struct
from tailrace.spark.tables.schemas import Path as ColumnPath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MaterializeJob", "SchemaLog", "materialize"]


@dataclass(frozen=True, kw_only=True)
class MaterializeJob(TableJob):
    """
    The parameters of `materialize`.

    Args:
        dead_letters: The directory of the table of dead letters; by default, the table's name with
            `-dead-letters`.
        columns_max: The largest number of columns; further fields go to `_rescued`.
    """

    dead_letters: str | Path | None = None
    columns_max: int = COLUMNS_MAX


@takes(MaterializeJob)
def materialize(spark: "SparkSession", job: MaterializeJob) -> TableJobResult:
    """
    Add new messages of the JSON streams of a bucket, or of single streams, to a table.

    Raises:
        BatchDiffers, CheckpointTaken, SourceTaken, SourceChanged: The checkpoint does not belong
            to the table.
        TableError: A table cannot be written.
    """
    path = job.path
    dead_letters = local_path(job.dead_letters or path.with_name(f"{path.name}-dead-letters"))
    if dead_letters == path:
        # The second commit of each batch would be skipped.
        raise TableShared(str(path))
    table = open_table(job.format, path, at=job.at, **(job.table_options or {}))
    # In the same format, but without the table's options: an Iceberg catalog is of one table.
    return _MaterializeRun(job, table, open_table(job.format, dead_letters, at=job.at)).run(spark)


class SchemaLog:
    """Rule 1: every schema that the table had, and the batch that made it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, application: str, batch_id: int) -> tuple[Struct, bool]:
        """The schema that this batch made, and true; otherwise the latest, and false."""
        entries = sorted(self._directory.glob("*.json"), reverse=True)
        latest: Struct = EMPTY
        for number, file in enumerate(entries):
            entry = read_json(file) or {}
            schema = load_struct(entry["schema"])
            if (entry["application"], entry["batch"]) == (application, batch_id):
                return schema, True
            latest = latest if number else schema
        return latest, False

    def keep(self, application: str, batch_id: int, schema: Struct) -> None:
        number = sum(1 for _ in self._directory.glob("*.json"))
        entry = {"application": application, "batch": batch_id, "schema": dump_type(schema)}
        write_json(self._directory / f"{number:06d}.json", entry)


class _MaterializeRun(TableRun):
    def __init__(self, job: MaterializeJob, table: Table, dead_letters: Table) -> None:
        super().__init__(job, table, dead_letters)
        self._columns_max = job.columns_max
        self._log = SchemaLog(table.path / "_tailrace" / "schema")
        # Columns with stored integers that a double would round stay long.
        self._longs: set[ColumnPath] = set()

    def _commit(self, frame: "DataFrame", batch: MicroBatch) -> tuple[Committed, Committed]:
        """Rule 2."""
        table, dead_letters = self._tables
        # It is read three times.
        frame.persist()
        try:
            schema = self._schema(frame, batch)
            rows = frame.mapInArrow(make_rows(dump_type(schema)), struct(table_schema(schema)))
            letters = frame.mapInArrow(find_dead_letters, DEAD_LETTER_COLUMNS)
            dead = self._commit_to(dead_letters, letters, batch)
            return self._commit_to(table, rows, batch), dead
        finally:
            frame.unpersist()

    def _schema(self, frame: "DataFrame", batch: MicroBatch) -> Struct:
        """The schema of a batch: the stored one, or a new one that is then stored."""
        schema, is_own = self._log.of(batch.application, batch.batch_id)
        if is_own or self._tables[0].committed(batch.batch_id):
            return schema
        task = find_schema(dump_type(schema), self._columns_max)
        found = frame.mapInArrow(task, FOUND_COLUMNS).collect()
        wider = schema
        for row in sorted(found, key=lambda row: int(row["partition"])):
            other = load_struct(json.loads(row["schema"]))
            wider = widen(wider, other, columns_max=self._columns_max)
        wider = keep_longs(wider, self._longs)
        if wider != schema:
            wider = self._exact(frame.sparkSession, wider)
        if wider != schema:
            self._log.keep(batch.application, batch.batch_id, wider)
        return wider

    def _exact(self, spark: "SparkSession", wider: Struct) -> Struct:
        """Rule 2 of `json_schema`: stored values are not rounded."""
        found = inexact(self._tables[0].read(spark), table_schema(wider))
        self._longs.update(found)
        return keep_longs(wider, found)
