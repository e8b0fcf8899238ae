"""How Spark writes and reads the files of a table."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.spark.tables.schemas import NO_COLUMNS, SchemaJson
from tailrace.spark.tables.staging import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tailrace.spark.tables.base import Table
    from tailrace.spark.tables.values import Rewrite, Write

__all__ = ["COPY", "empty_frame", "rewriting", "settings", "struct", "writing"]

COPY: Final = "_in_"
"""What the name of a column is preceded by, where it is in the file and in its path."""

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
    """Read files of the table and write their rows again."""

    def rewrite(
        files: Sequence[DataFile], schema: SchemaJson | None, count: int, directory: Path
    ) -> None:
        frame = table.frame(spark, files, table.schema() or NO_COLUMNS)
        if schema is not None:
            types = struct(schema)
            frame = frame.select(
                *(frame[_quoted(f.name)].cast(f.dataType).alias(f.name) for f in types)
            )
        writing(frame.coalesce(count), table)(directory)

    return rewrite


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
