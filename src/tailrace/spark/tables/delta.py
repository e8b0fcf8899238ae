"""
Delta Lake tables, by `deltalake`: no jar is needed.

The batch's id is Delta's own transaction identifier (`txn`: application and version), in the same
commit as the batch's files. Columns are added in a commit of their own before it, which is none
the worse for a crash in between.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailrace.spark.tables.errors import LibraryMissing
from tailrace.spark.tables.metadata import MetadataTable
from tailrace.spark.tables.schemas import SchemaJson
from tailrace.spark.tables.staging import DataFile
from tailrace.spark.tables.values import Change

__all__ = ["DeltaTable"]


class DeltaTable(MetadataTable):
    """A table with a Delta log."""

    format = "delta"

    def __init__(self, path: Path, *args: Any, **kwargs: Any) -> None:
        _library()
        super().__init__(path, *args, **kwargs)

    def schema(self) -> SchemaJson | None:
        table = self._open()
        if table is None:
            return None
        schema: SchemaJson = json.loads(table.schema().to_json())
        return schema

    def files(self) -> list[DataFile]:
        import pyarrow as pa

        table = self._open()
        if table is None:
            return []
        rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [self._file(row) for row in rows]

    def _file(self, row: Mapping[str, Any]) -> DataFile:
        values = (row.get(f"partition.{name}") for name in self.partition_by)
        partition = tuple(None if value is None else str(value) for value in values)
        return DataFile(row["path"], row["num_records"], row["size_bytes"], partition)

    def _last_batch(self, application: str) -> int | None:
        table = self._open()
        last: int | None = None if table is None else table.transaction_version(application)
        return last

    def _log(self, change: Change) -> None:
        from deltalake.transaction import CommitProperties, Transaction

        schema = _library().Schema.from_json(json.dumps(change.schema))
        table = self._open() or self._create(schema)
        if change.retypes:
            mode, actions = "overwrite", [self._add(add.file) for add in change.adds]
        else:
            self._add_columns(table, change.schema, schema)
            mode, actions = "append", self._actions(change)
        transactions = [Transaction(*change.batch)] if change.batch else None
        self._at("logging")
        table.create_write_transaction(
            actions, mode, schema, list(self.partition_by),
            commit_properties=CommitProperties(app_transactions=transactions),
        )  # fmt: skip

    def _actions(self, change: Change) -> list[Any]:
        from deltalake.transaction import RemoveAction

        # A compaction changes no data: readers that follow the log skip it.
        is_new = not change.removes
        now_ms = int(time.time() * 1000)
        removes = [
            RemoveAction(file.path, is_new, now_ms, file.bytes, self._partition(file))
            for file in change.removes
        ]
        return [self._add(add.file, is_new) for add in change.adds] + removes

    def _add(self, file: DataFile, is_new: bool = True) -> Any:
        from deltalake.transaction import AddAction

        written_ms = int((self.path / file.path).stat().st_mtime * 1000)
        stats = json.dumps({"numRecords": file.rows})
        return AddAction(file.path, file.bytes, self._partition(file), written_ms, is_new, stats)

    def _partition(self, file: DataFile) -> dict[str, str | None]:
        return dict(zip(self.partition_by, file.partition, strict=True))

    def _add_columns(self, table: Any, wanted: SchemaJson, schema: Any) -> None:
        if json.loads(table.schema().to_json()) == wanted:
            return
        import pyarrow as pa

        nothing = pa.schema(schema.to_arrow()).empty_table()
        _library().write_deltalake(table, nothing, mode="append", schema_mode="merge")
        table.update_incremental()

    def _create(self, schema: Any) -> Any:
        return _library().DeltaTable.create(
            str(self.path), schema, partition_by=list(self.partition_by)
        )

    def _open(self) -> Any:
        """The table at its latest version; None before the first batch."""
        if not (self.path / "_delta_log").is_dir():
            return None
        return _library().DeltaTable(str(self.path))


def _library() -> Any:
    try:
        import deltalake
    except ImportError:
        raise LibraryMissing("deltalake", "delta") from None
    return deltalake
