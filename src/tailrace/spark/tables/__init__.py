"""
Tables that take each batch once: Parquet, Iceberg and Delta, as local directories.

    table = open_table("parquet", "events", partition_by=("bucket", "day"))
    table.commit(0, dataframe)      # again: nothing changes
    table.read(spark)
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tailrace.spark.tables.base import HIDDEN, Table
from tailrace.spark.tables.errors import (
    BatchDiffers,
    CheckpointTaken,
    FormatUnknown,
    LibraryMissing,
    PathAwkward,
    PathUnsupported,
    SchemaConflict,
    SchemaInexact,
    SourceChanged,
    SourceTaken,
    TableBusy,
    TableDamaged,
    TableError,
    TableMismatch,
    TableMissing,
    TableShared,
)
from tailrace.spark.tables.files import local_path
from tailrace.spark.tables.values import Committed, Compacted, nothing

__all__ = [
    "FORMATS",
    "BatchDiffers",
    "CheckpointTaken",
    "Committed",
    "Compacted",
    "FormatUnknown",
    "LibraryMissing",
    "PathAwkward",
    "PathUnsupported",
    "SchemaConflict",
    "SchemaInexact",
    "SourceChanged",
    "SourceTaken",
    "Table",
    "TableBusy",
    "TableDamaged",
    "TableError",
    "TableMismatch",
    "TableMissing",
    "TableShared",
    "open_table",
]

FORMATS = ("parquet", "iceberg", "delta")


def open_table(
    format: str,
    path: str | Path,
    *,
    partition_by: Sequence[str] = (),
    application: str = "tailrace",
    at: Callable[[str], None] = nothing,
    create: bool = True,
    **options: Any,
) -> Table:
    """
    The table in a directory, which is made if need be.

    `application` names who commits batches. Options of Iceberg: `catalog`, properties of a
    catalog other than the table's own, and `identifier`, the table's name in it.

    Raises:
        FormatUnknown, LibraryMissing, PathUnsupported, PathAwkward, TableMismatch
        TableMissing: It is not there, and `create` is false.
    """
    where = local_path(path)
    if not create and not (where / HIDDEN / "table.json").exists():
        raise TableMissing(str(where))
    kind = _kind(format)
    if format != "parquet" and set("%#?") & set(str(where)):
        raise PathAwkward(str(where))
    return kind(where, partition_by, application, at, **options)


def _kind(format: str) -> Callable[..., Table]:
    if format == "parquet":
        from tailrace.spark.tables.parquet import ParquetTable

        return ParquetTable
    if format == "iceberg":
        from tailrace.spark.tables.iceberg import IcebergTable

        return IcebergTable
    if format == "delta":
        from tailrace.spark.tables.delta import DeltaTable

        return DeltaTable
    raise FormatUnknown(format)
