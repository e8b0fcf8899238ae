"""The tasks of `materialize`: find the schema, make rows, and find dead letters."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.spark.jobs.materialize.json_rows import JsonRows, decode_object, why_not_object
from tailrace.spark.jobs.materialize.json_schema import (
    Struct,
    dump_type,
    infer,
    load_struct,
    spark_type,
    widen,
)
from tailrace.spark.tables.schemas import SchemaJson

__all__ = [
    "DEAD_LETTER_COLUMNS",
    "FOUND_COLUMNS",
    "find_dead_letters",
    "find_schema",
    "make_rows",
    "table_schema",
]

FOUND_COLUMNS: Final = "partition int, schema string"
DEAD_LETTER_COLUMNS: Final = (
    "bucket string, stream string, message long, offset string, time timestamp,"
    " value binary, reason string"
)
_METADATA: Final = {
    "_stream": ("stream", "string"),
    "_message": ("message", "long"),
    "_offset": ("offset", "string"),
    "_time": ("time", "timestamp"),
}
_RESCUED: Final = "_rescued"

Task = Callable[[Iterable[Any]], Iterator[Any]]


def table_schema(schema: Struct) -> SchemaJson:
    """The table's columns: metadata, `_rescued`, and the fields of messages."""
    metadata = [(name, kind) for name, (_, kind) in _METADATA.items()]
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in [*metadata, (_RESCUED, "string")]
    ]
    return {"type": "struct", "fields": [*fields, *spark_type(schema)["fields"]]}


def find_schema(stored: Any, columns_max: int) -> Task:
    """One row with a wider schema, for a partition whose messages need one."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        before = schema = load_struct(stored)
        rows = JsonRows(schema)
        for batch in batches:
            for value in _split(batch, objects=True)[0].column("value").to_pylist():
                message = decode_object(value)
                if message is None or rows.fits(message):
                    continue
                found = infer(message)
                wider = widen(schema, found, columns_max=columns_max) if found else schema  # type: ignore[arg-type]
                if wider != schema:
                    schema, rows = wider, JsonRows(wider)
        if schema != before:
            yield pa.RecordBatch.from_pydict(
                {
                    "partition": pa.array([_partition()], pa.int32()),
                    "schema": [json.dumps(dump_type(schema))],
                }
            )

    return task


def make_rows(stored: Any) -> Task:
    """The messages that are objects, as rows of the table."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        schema = load_struct(stored)
        types = to_arrow_schema(StructType.fromJson(table_schema(schema)), timezone="UTC")
        rows = JsonRows(schema)
        for batch in batches:
            yield _typed(_split(batch, objects=True)[0], rows, types)

    return task


def find_dead_letters(batches: Iterable[Any]) -> Iterator[Any]:
    """The messages that are not objects, with the reasons."""
    for batch in batches:
        dead, reasons = _split(batch, objects=False)
        names = ("bucket", "stream", "message", "offset", "time", "value")
        columns = {name: dead.column(name) for name in names}
        yield pa.RecordBatch.from_pydict({**columns, "reason": pa.array(reasons, pa.string())})


def _typed(batch: Any, rows: JsonRows, types: Any) -> Any:
    found = [rows.row(value) for value in batch.column("value").to_pylist()]
    columns = {name: batch.column(of) for name, (of, _) in _METADATA.items()}
    columns[_RESCUED] = pa.array([rescued for _, rescued in found], pa.string())
    for field in types:
        if field.name not in columns:
            values = [row.get(field.name) for row, _ in found]
            columns[field.name] = pa.array(values, field.type)
    return pa.RecordBatch.from_arrays([columns[name] for name in types.names], names=types.names)


def _split(batch: Any, *, objects: bool) -> tuple[Any, list[str | None]]:
    """The rows whose messages are, or are not, JSON objects; with the reasons."""
    kinds, values = batch.column("content_type").to_pylist(), batch.column("value").to_pylist()
    reasons = [why_not_object(kind, value) for kind, value in zip(kinds, values, strict=True)]
    keep = [(reason is None) == objects for reason in reasons]
    kept = [reason for reason, is_kept in zip(reasons, keep, strict=True) if is_kept]
    return batch.filter(pa.array(keep, pa.bool_())), kept


def _partition() -> int:
    context = TaskContext.get()
    # Outside of Spark there is one partition.
    return 0 if context is None else context.partitionId()
