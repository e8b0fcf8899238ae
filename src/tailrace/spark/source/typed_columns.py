"""
JSON messages as typed columns, by a schema of the user.

Arrow's reader parses a whole record batch at once, and fails if one value has another type. Only
then are messages parsed one by one: a value of the right type goes to its column, any other to
`_rescued` as JSON text, complete and unchanged.

Metadata columns are those of the source with an underscore before their names.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.spark.options import OptionInvalid
from tailrace.spark.source.columns import COLUMNS, SNAPSHOT, SourceColumns, check_source_schema
from tailrace.spark.source.type_conversion import EXACT_MAX, TypeMismatch, convert

__all__ = ["RESCUED", "TypedColumns"]

RESCUED: Final = "_rescued"
EACH_MAX: Final = 64
"""A batch that fails is halved; batches of this size are parsed message by message."""
_METADATA: Final = {f"_{name}": name for name in (*COLUMNS, SNAPSHOT)}
# Types that Arrow's JSON reader converts exactly as `convert` does.
_FAST: Final = (pa.types.is_boolean, pa.types.is_int64, pa.types.is_float64, pa.types.is_string)

_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class TypedColumns:
    """Makes record batches of a schema of the messages."""

    def __init__(self, schema: StructType, bucket: str | None) -> None:
        for field in schema:
            if field.name == RESCUED and not isinstance(field.dataType, StringType):
                raise OptionInvalid("schema", f"must have {RESCUED} as string")
        metadata = [field for field in schema if field.name in _METADATA]
        selected = StructType([StructField(_METADATA[f.name], f.dataType) for f in metadata])
        check_source_schema(selected)
        self._metadata = SourceColumns(selected, bucket)
        self._metadata_names = [field.name for field in metadata]
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._typed = pa.schema(
            [f for f in self._schema if f.name not in _METADATA and f.name != RESCUED]
        )
        self._rescues = RESCUED in self._schema.names
        self._is_fast = all(any(test(f.type) for test in _FAST) for f in self._typed)
        self.wire = list(dict.fromkeys([*self._metadata.wire, "value"]))

    def rows(self, batch: pa.RecordBatch, streams: pa.Array) -> pa.RecordBatch:
        parsed = pa.Table.from_batches(self._parse(batch.column("value"))).combine_chunks()
        found = {name: parsed.column(name).chunk(0) for name in parsed.column_names}
        metadata = self._metadata.rows(batch, streams)
        found.update(zip(self._metadata_names, metadata.columns, strict=True))
        return pa.RecordBatch.from_arrays(
            [found[n] for n in self._schema.names], schema=self._schema
        )

    def row(self, stream: str, **values: Any) -> pa.RecordBatch:
        """Make the row of a snapshot; its content is not a message, so it goes to `_rescued`."""
        metadata = self._metadata.row(stream, **values)
        found = dict(zip(self._metadata_names, metadata.columns, strict=True))
        content = bytes(values.get("value") or b"").decode(errors="replace")
        found[RESCUED] = pa.array([content], pa.string())
        arrays = [found.get(f.name, pa.nulls(1, f.type)) for f in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _parse(self, values: pa.Array) -> list[pa.RecordBatch]:
        """The typed columns and `_rescued`, in pieces."""
        count = len(values)
        columns = self._parse_fast(values) if self._is_fast else None
        rescued: Sequence[str | None] = [None] * count
        if columns is None:
            if self._is_fast and count > EACH_MAX:
                # A mismatch slows down the messages around it, not the whole batch.
                half = count // 2
                return self._parse(values[:half]) + self._parse(values[half:])
            columns, rescued = self._parse_each(values)
        arrays = [*columns, pa.array(rescued, pa.string())]
        return [pa.RecordBatch.from_arrays(arrays, names=[*self._typed.names, RESCUED])]

    def _parse_fast(self, values: pa.Array) -> list[pa.Array] | None:
        """Parse all at once; None unless each message is an object of matching fields."""
        count = len(values)
        # Every message makes at least one row, so as many rows as messages are one each.
        if not count or not len(self._typed) or not pc.all(pc.starts_with(values, "{")).as_py():
            return None
        whole = pa.LargeListArray.from_arrays(pa.array([0, count], pa.int64()), values)
        lines = pc.binary_join(whole, b"\n")[0].as_buffer()
        options = pj.ParseOptions(
            explicit_schema=self._typed,
            newlines_in_values=True,
            unexpected_field_behavior="error" if self._rescues else "ignore",
        )
        # One block: a value must not be larger than a block.
        read = pj.ReadOptions(use_threads=False, block_size=lines.size + 1)
        try:
            table = pj.read_json(pa.BufferReader(lines), read, options)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != count or any(map(_may_be_rounded, table.columns)):
            return None
        return [table.column(name).combine_chunks() for name in self._typed.names]

    def _parse_each(self, values: pa.Array) -> tuple[list[pa.Array], list[str | None]]:
        columns: list[list[Any]] = [[] for _ in self._typed]
        rescued: list[str | None] = []
        for value in values.to_pylist():
            converted, rest = self._convert_message(value)
            for column, field in zip(columns, self._typed, strict=True):
                column.append(converted.get(field.name))
            rescued.append(rest)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, self._typed, strict=True)
        ]
        return arrays, rescued

    def _convert_message(self, value: bytes) -> tuple[dict[str, Any], str | None]:
        try:
            value.decode()
            raw = _raw_object(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}, value.decode(errors="replace")
        converted, rest = {}, {}
        for name, item in raw.items():
            try:
                converted[name] = convert(bytes(item), self._typed.field(name).type)
            except (TypeMismatch, KeyError):
                rest[name] = bytes(item).decode()
        return converted, _object_of(rest) if rest else None


def _may_be_rounded(column: pa.ChunkedArray) -> bool:
    """Whether the column has doubles so large that they may be rounded integers."""
    if not pa.types.is_floating(column.type):
        return False
    return bool(pc.any(pc.greater_equal(pc.abs(column), float(EXACT_MAX))).as_py())


def _object_of(raw: dict[str, str]) -> str:
    """A JSON object of values that are JSON text already, so they stay unchanged."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in raw.items()) + "}"
