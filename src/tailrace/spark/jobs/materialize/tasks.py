"""What tasks of `materialize` do with record batches: find a schema, make rows, tell the rest."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from tailrace.spark.jobs.materialize.json_rows import JsonRows, object_of, reason_against
from tailrace.spark.jobs.materialize.json_schema import (
    Struct,
    dump_type,
    infer,
    load_type,
    spark_type,
    widen,
)
from tailrace.spark.tables.schemas import SchemaJson

__all__ = ["DEAD_COLUMNS", "FOUND_COLUMNS", "find_schema", "make_rows", "table_schema", "tell_dead"]

FOUND_COLUMNS: Final = "partition int, schema string"
DEAD_COLUMNS: Final = (
    "bucket string, stream string, message long, offset string, time timestamp,"
    " value binary, reason string"
)
_PLACES: Final = {
    "_stream": ("stream", "string"),
    "_message": ("message", "long"),
    "_offset": ("offset", "string"),
    "_time": ("time", "timestamp"),
}
_RESCUED: Final = "_rescued"

Task = Callable[[Iterable[Any]], Iterator[Any]]


def table_schema(schema: Struct) -> SchemaJson:
    """The table's columns: where a message lies, its fields, and what fits none of them."""
    own = [(name, kind) for name, (_, kind) in _PLACES.items()]
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in [*own, (_RESCUED, "string")]
    ]
    return {"type": "struct", "fields": [*fields, *spark_type(schema)["fields"]]}


def find_schema(kept: Any, columns_max: int) -> Task:
    """One row for a partition whose messages do not all fit: the schema that they would."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        schema = load_type(kept)
        assert isinstance(schema, Struct)
        before, rows = schema, JsonRows(schema)
        for batch in batches:
            for value in _objects(batch):
                if rows.fits(value):
                    continue
                found = infer(value)
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


def make_rows(kept: Any) -> Task:
    """The messages that are objects, as rows of the table."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        schema = load_type(kept)
        assert isinstance(schema, Struct)
        rows, types = JsonRows(schema), _arrow_schema(table_schema(schema))
        for batch in batches:
            yield _typed(_dead_or_alive(batch, alive=True)[0], rows, types)

    return task


def tell_dead(batches: Iterable[Any]) -> Iterator[Any]:
    """The messages that are none, and why."""
    for batch in batches:
        dead, reasons = _dead_or_alive(batch, alive=False)
        names = ("bucket", "stream", "message", "offset", "time", "value")
        columns = {name: dead.column(name) for name in names}
        yield pa.RecordBatch.from_pydict({**columns, "reason": pa.array(reasons, pa.string())})


def _typed(batch: Any, rows: JsonRows, types: Any) -> Any:
    found = [rows.row(value) for value in batch.column("value").to_pylist()]
    columns = {name: batch.column(of) for name, (of, _) in _PLACES.items()}
    columns[_RESCUED] = pa.array([rescued for _, rescued in found], pa.string())
    for field in types:
        if field.name not in columns:
            values = [row.get(field.name) for row, _ in found]
            columns[field.name] = pa.array(values, field.type)
    return pa.RecordBatch.from_arrays([columns[name] for name in types.names], names=types.names)


def _dead_or_alive(batch: Any, *, alive: bool) -> tuple[Any, list[str | None]]:
    """The rows that are, or are not, messages of JSON objects; with the reasons."""
    kinds, values = batch.column("content_type").to_pylist(), batch.column("value").to_pylist()
    reasons = [reason_against(kind, value) for kind, value in zip(kinds, values, strict=True)]
    keep = [(reason is None) == alive for reason in reasons]
    kept = [reason for reason, is_kept in zip(reasons, keep, strict=True) if is_kept]
    return batch.filter(pa.array(keep, pa.bool_())), kept


def _objects(batch: Any) -> Iterator[dict[str, Any]]:
    alive, _ = _dead_or_alive(batch, alive=True)
    for value in alive.column("value").to_pylist():
        found = object_of(value)
        if found is not None:
            yield found


def _arrow_schema(schema: SchemaJson) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(schema), timezone="UTC")


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    # Without Spark, there is one partition.
    return 0 if context is None else context.partitionId()
