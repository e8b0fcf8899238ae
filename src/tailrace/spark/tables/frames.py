"""How Spark writes and reads the files of a table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.spark.tables.errors import SchemaInexact
from tailrace.spark.tables.schemas import NO_COLUMNS, SchemaJson, longs_to_doubles
from tailrace.spark.tables.schemas import Path as ColumnPath
from tailrace.spark.tables.staging import DataFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tailrace.spark.tables.base import Table
    from tailrace.spark.tables.values import Rewrite, Write

__all__ = ["COPY", "empty_frame", "inexact", "rewriting", "settings", "struct", "writing"]

COPY: Final = "_in_"
"""What the name of a column is preceded by, where it is in the file and in its path."""

EXACT_MAX: Final = 1 << 53
"""Every integer up to this one is a double too."""

_WRITING: Final = {
    # Spark's default is INT96, which Iceberg and Delta do not take.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def struct(schema: SchemaJson) -> "StructType":
    from pyspark.sql.types import StructType

    return StructType.fromJson(schema)


def empty_frame(spark: "SparkSession", schema: SchemaJson = NO_COLUMNS) -> "DataFrame":
    return spark.createDataFrame([], struct(schema))


def writing(dataframe: "DataFrame", table: "Table") -> "Write":
    """Write all rows, each partition's into its own directory."""

    def write(directory: Path) -> None:
        frame = dataframe
        for name, copy in zip(table.partition_by, table.directories, strict=True):
            if name != copy:
                frame = frame.withColumn(copy, frame[name])
        with settings(frame.sparkSession, _WRITING):
            frame.write.partitionBy(*table.directories).parquet(str(directory))

    return write


def rewriting(spark: "SparkSession", table: "Table") -> "Rewrite":
    """Read files of the table and write their rows again; `SchemaInexact` if they would change."""

    def rewrite(
        files: Sequence[DataFile], schema: SchemaJson | None, count: int, directory: Path
    ) -> None:
        frame = table.frame(spark, files, table.schema() or NO_COLUMNS)
        if schema is not None:
            for path in inexact(frame, schema):
                raise SchemaInexact(".".join("[]" if name is None else name for name in path))
            types = struct(schema)
            frame = frame.select(
                *(frame[_quoted(f.name)].cast(f.dataType).alias(f.name) for f in types)
            )
        writing(frame.coalesce(count), table)(directory)

    return rewrite


def inexact(frame: "DataFrame", schema: SchemaJson) -> list[ColumnPath]:
    """Which longs of the rows are doubles in a schema, and would not all come back from there."""
    from pyspark.sql import functions as F

    paths = longs_to_doubles(frame.schema.jsonValue(), schema)
    if not paths:
        return []
    looks = [F.bool_or(_beyond(frame[_quoted(str(path[0]))], path[1:])) for path in paths]
    found = frame.agg(*(look.alias(f"c{at}") for at, look in enumerate(looks))).first()
    assert found is not None
    return [path for path, is_beyond in zip(paths, found, strict=True) if is_beyond]


def _beyond(value: "Column", path: ColumnPath) -> "Column":
    from pyspark.sql import functions as F

    if not path:
        # Not by casting there and back: the largest long comes back from a double that is not it.
        return (value < -EXACT_MAX) | (value > EXACT_MAX)
    name, rest = path[0], path[1:]
    if name is None:
        return F.exists(value, lambda item: _beyond(item, rest))
    return _beyond(value.getField(name), rest)


@contextmanager
def settings(spark: "SparkSession", values: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for a while, and then as they were."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
