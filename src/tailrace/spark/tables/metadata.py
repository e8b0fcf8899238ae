"""
Formats whose own log says which files belong to the table: Iceberg and Delta.

Here the log is what commits. The journal only names the files that are about to be added, so that
after a crash those that the log does not have can be deleted: nothing is left lying about.
Files that a compaction replaces stay, for readers of older versions, until the format's own
means remove them (Delta's `vacuum`, Iceberg's expiry of snapshots).
"""

import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.spark.tables.base import Table
from tailrace.spark.tables.files import move, read_json, sync_file, write_json
from tailrace.spark.tables.frames import struct
from tailrace.spark.tables.schemas import SchemaJson
from tailrace.spark.tables.staging import DataFile
from tailrace.spark.tables.values import Change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MetadataTable"]


class MetadataTable(Table):
    """A table whose log names its files."""

    @abstractmethod
    def _log(self, change: Change) -> None:
        """Commit: add and remove files, and keep the batch's id, in one version."""

    def frame(
        self, spark: "SparkSession", files: Sequence[DataFile], schema: SchemaJson
    ) -> "DataFrame":
        paths = [str(self.path / file.path) for file in files]
        reader = spark.read.schema(struct(schema)).option("basePath", str(self.path))
        return reader.parquet(*paths)

    def _publish(self, change: Change) -> None:
        write_json(self._journal, {"adds": [add.file.path for add in change.adds]})
        self._at("journaled")
        for number, add in enumerate(change.adds):
            move(self.path / add.source, self.path / add.file.path)
            self._at(f"moved {number}")
        for directory in sorted({(self.path / add.file.path).parent for add in change.adds}):
            sync_file(directory)
        self._log(change)
        self._at("logged")
        self._journal.unlink()
        self._at("done")

    def _recover(self) -> None:
        journal = read_json(self._journal)
        if journal is None:
            return
        known = {os.fspath(file.path) for file in self.files()}
        for path in journal["adds"]:
            if path not in known:
                (self.path / path).unlink(missing_ok=True)
        self._journal.unlink()
