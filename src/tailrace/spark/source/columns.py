"""
The columns of the source, and the conversion of rows of a server to rows of Spark.

A user schema of these columns alone selects some of them, and only these are requested. Any other
schema describes the JSON in `value`: see `typed_columns`.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.spark.options import OptionInvalid, ReadOptions
from tailrace.spark.source.errors import SourceFailed

__all__ = [
    "COLUMNS",
    "SNAPSHOT",
    "SourceColumns",
    "check_source_schema",
    "default_schema",
    "is_source_schema",
]

SNAPSHOT: Final = "is_snapshot"
COLUMNS: Final[Mapping[str, DataType]] = {
    "bucket": StringType(),
    "stream": StringType(),
    "message": LongType(),
    "offset": StringType(),
    "next_offset": StringType(),
    "time": TimestampType(),
    "content_type": StringType(),
    "value": BinaryType(),
}
# Constant for all rows of a stream, so not requested.
_LOCAL: Final = ("bucket", "stream", SNAPSHOT)
_UTC_US: Final = pa.timestamp("us", tz="UTC")


def default_schema(options: ReadOptions) -> StructType:
    """The schema if the user gives none."""
    types: dict[str, DataType] = dict(COLUMNS)
    if options.value == "text":
        types["value"] = StringType()
    if options.bootstrap:
        types[SNAPSHOT] = BooleanType()
    return StructType([StructField(name, kind) for name, kind in types.items()])


def is_source_schema(schema: StructType) -> bool:
    """Whether a schema only selects columns of the source."""
    return all(field.name in COLUMNS or field.name == SNAPSHOT for field in schema)


def check_source_schema(schema: StructType) -> None:
    """
    Check the types of selected columns.

    Raises:
        OptionInvalid: One differs from the source's.
    """
    for field in schema:
        wanted = BooleanType() if field.name == SNAPSHOT else COLUMNS[field.name]
        is_text = field.name == "value" and isinstance(field.dataType, StringType)
        if field.dataType != wanted and not is_text:
            raise OptionInvalid(
                "schema",
                f"has {field.name} as {field.dataType.simpleString()}; it is "
                f"{wanted.simpleString()}. To parse JSON with a field of this name, add _stream, "
                "_offset or another column that the source does not have",
            )


class SourceColumns:
    """Makes record batches of one schema."""

    def __init__(self, schema: StructType, bucket: str | None) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._names = [field.name for field in schema]
        self._bucket = bucket
        self.wire = ["range", *(name for name in self._names if name not in _LOCAL)]
        """The columns to request from a server."""

    def rows(self, batch: pa.RecordBatch, streams: pa.Array) -> pa.RecordBatch:
        """Convert rows of a server; `streams` has the names of the requested ranges."""
        arrays = [self._column(name, batch, streams) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, batch: pa.RecordBatch, streams: pa.Array) -> pa.Array:
        if name == "stream":
            return streams.take(batch.column("range"))
        if name == "bucket":
            return pa.repeat(pa.scalar(self._bucket, pa.string()), batch.num_rows)
        if name == SNAPSHOT:
            return pa.repeat(pa.scalar(False), batch.num_rows)
        array = batch.column(name)
        if name == "time":
            return array.cast(_UTC_US)
        if name == "value" and pa.types.is_string(self._schema.field(name).type):
            return _as_text(array, streams, batch)
        return array

    def row(self, stream: str, **values: Any) -> pa.RecordBatch:
        """Make one row: of a snapshot, or of a response of another server."""
        values = {"stream": stream, "bucket": self._bucket, SNAPSHOT: False, **values}
        arrays = []
        for field in self._schema:
            value = values.get(field.name)
            if pa.types.is_string(field.type) and isinstance(value, bytes):
                value = _decoded(stream, value)
            arrays.append(pa.array([value], field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _as_text(array: pa.Array, streams: pa.Array, batch: pa.RecordBatch) -> pa.Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        for value, index in zip(array, batch.column("range"), strict=True):
            _decoded(streams[index.as_py()].as_py(), value.as_py())
        raise


def _decoded(stream: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise SourceFailed(
            stream, f"a message is not UTF-8 ({error.reason}): read it with value=binary"
        ) from None
