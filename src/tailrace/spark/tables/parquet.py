"""
Plain Parquet in Hive's layout: any reader of Parquet reads it.

A change is committed when its journal is on disk; from then on it is only carried out, again and
again if need be, until the journal is gone. A reader that lists the directory just while a change
is carried out may see a part of it, or rows before and after a compaction at once: where that
matters, use Iceberg or Delta.

`<table>/_tailrace/committed.json` has the schema, and the last batch of each application.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.spark.tables.base import HIDDEN, Table
from tailrace.spark.tables.errors import TableDamaged
from tailrace.spark.tables.files import move, read_json, sync_file, write_json
from tailrace.spark.tables.frames import struct
from tailrace.spark.tables.schemas import SchemaJson
from tailrace.spark.tables.staging import DataFile, partition_values
from tailrace.spark.tables.values import Change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ParquetTable"]


class ParquetTable(Table):
    """Parquet files and nothing else."""

    format = "parquet"

    def schema(self) -> SchemaJson | None:
        schema: SchemaJson | None = self._record().get("schema")
        return schema

    def files(self) -> list[DataFile]:
        shown = (entry for entry in self.path.iterdir() if entry.name != HIDDEN)
        found = (f for e in shown for f in ([e] if e.is_file() else e.rglob("*.parquet")))
        return [self._file(file) for file in sorted(found)]

    def _file(self, file: Path) -> DataFile:
        below = file.relative_to(self.path)
        values = partition_values(below.parent, self.partition_by)
        # Counting rows would open every file of the table.
        return DataFile(below.as_posix(), None, file.stat().st_size, values)

    def frame(
        self, spark: "SparkSession", files: Sequence[DataFile], schema: SchemaJson
    ) -> "DataFrame":
        paths = [str(self.path / file.path) for file in files]
        reader = spark.read.schema(struct(schema)).option("basePath", str(self.path))
        return reader.parquet(*paths)

    def _last_batch(self, application: str) -> int | None:
        last: int | None = self._record().get("batches", {}).get(application)
        return last

    def _publish(self, change: Change) -> None:
        record = self._record()
        record["schema"] = change.schema
        if change.batch is not None:
            application, batch_id = change.batch
            record["batches"] = {**record.get("batches", {}), application: batch_id}
        journal = {
            "moves": [[add.source, add.file.path] for add in change.adds],
            "removes": [file.path for file in change.removes],
            "record": record,
        }
        write_json(self._journal, journal)
        self._at("journaled")
        self._carry_out(journal)

    def _recover(self) -> None:
        journal = read_json(self._journal)
        if journal is not None:
            self._carry_out(journal)

    def _carry_out(self, journal: dict[str, Any]) -> None:
        """Every step may have been done before."""
        for number, (source, target) in enumerate(journal["moves"]):
            if not move(self.path / source, self.path / target):
                self._check_moved(target)
            self._at(f"moved {number}")
        for directory in sorted({(self.path / to).parent for _, to in journal["moves"]}):
            sync_file(directory)
        for number, path in enumerate(journal["removes"]):
            (self.path / path).unlink(missing_ok=True)
            self._at(f"removed {number}")
        write_json(self._hidden / "committed.json", journal["record"])
        self._at("recorded")
        self._journal.unlink()
        self._at("done")

    def _check_moved(self, target: str) -> None:
        if not (self.path / target).exists():
            raise TableDamaged(str(self.path), target)

    def _record(self) -> dict[str, Any]:
        return read_json(self._hidden / "committed.json") or {}
