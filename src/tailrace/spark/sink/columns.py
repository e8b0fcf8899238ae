"""
The columns of a DataFrame, checked, and its rows in the form that the sink works with:

    bucket, stream    the target of a row, if the DataFrame has these columns
    content_type      if the DataFrame has this column
    order0, order1 …  the columns of `orderBy`
    row               the number of the row in the partition, in the order of arrival
    value             binary

Rule 1: invalid columns are reported on the driver, before any task runs; an invalid row, before its
request is sent.

Strings and bytes get offsets of 64 bits: rows are joined, and 2 GiB would overflow 32 bits.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.spark.options import WriteOptions
from tailrace.spark.sink.errors import ColumnsInvalid, TargetInvalid, ValueInvalid

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["SinkColumns"]

_TEXT: Final = frozenset(("string", "varchar", "char"))
_NUMBER: Final = frozenset(("byte", "short", "integer", "long", "float", "double", "decimal"))
_TIME: Final = frozenset(("date", "timestamp", "timestamp_ntz"))
_ORDERED: Final = _TEXT | _NUMBER | _TIME | {"binary", "boolean"}
_INVALID_PREFIXES: Final = {
    "": "is empty",
    # The client removes it, so two names would be the same stream.
    "/": "begins with a slash: leave that out",
    "http://": "has a whole URL: rows go to streams of the option url",
    "https://": "has a whole URL: rows go to streams of the option url",
}
"""Prefixes that the name of a stream must not have, and why."""


@dataclass(frozen=True)
class SinkColumns:
    """The columns that rows have."""

    has_bucket: bool
    has_stream: bool
    has_content_type: bool
    order_by: tuple[str, ...]
    stable: bool
    """Whether rows come in the same order at every attempt."""

    @classmethod
    def of(cls, options: WriteOptions, schema: "StructType") -> "SinkColumns":
        """
        The columns of a DataFrame.

        Raises:
            ColumnsInvalid: It cannot be written.
        """
        types = {field.name: field.dataType.typeName() for field in schema.fields}
        names = (name.strip() for name in (options.order_by or "").split(","))
        order_by = tuple(name for name in names if name)
        if types.get("value") not in _TEXT | {"binary"}:
            raise ColumnsInvalid(_wrong("value", types, "binary or string"))
        for name in ("bucket", "stream", "content_type"):
            if name in types and types[name] not in _TEXT:
                raise ColumnsInvalid(_wrong(name, types, "string"))
        for name in order_by:
            if types.get(name) not in _ORDERED:
                raise ColumnsInvalid(_wrong(name, types, "a type that can be ordered"))
        if "stream" not in types and options.stream is None:
            raise ColumnsInvalid("there is neither a column stream nor an option stream")
        if "stream" not in types and "bucket" in types:
            raise ColumnsInvalid("there is a column bucket and no column stream")
        return cls(
            has_bucket="bucket" in types,
            has_stream="stream" in types,
            has_content_type="content_type" in types,
            order_by=order_by,
            stable=options.stable_input,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The sort keys: by stream, and within it."""
        if not self.order_by:
            return (*self._target, "row")
        # The value last: rows that are then still equal are the same message.
        return (*self._target, *(f"order{at}" for at in range(len(self.order_by))), "value")

    @property
    def _target(self) -> tuple[str, ...]:
        both = (("bucket", self.has_bucket), ("stream", self.has_stream))
        return tuple(name for name, exists in both if exists)

    @property
    def comes_in_order(self) -> bool:
        """Whether rows can be sent as they come, without sorting."""
        return not self.has_stream and not self.order_by

    def rows(self, partition: int, batches: Iterable[Any]) -> Iterator[Any]:
        """
        Convert the record batches of a partition.

        Raises:
            TargetInvalid: A row does not name a valid stream.
            ValueInvalid: A row has no value.
        """
        first = 0
        for batch in batches:
            yield self._converted(partition, first, batch)
            first += batch.num_rows

    def _converted(self, partition: int, first: int, batch: Any) -> Any:
        columns = {}
        for name in self._target:
            columns[name] = _large(batch.column(name))
            _check_target(name, columns[name], partition, first)
        if self.has_content_type:
            columns["content_type"] = _large(batch.column("content_type"))
        for at, name in enumerate(self.order_by):
            columns[f"order{at}"] = _large(batch.column(name))
        columns["row"] = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
        columns["value"] = _large(batch.column("value")).cast(pa.large_binary())
        if columns["value"].null_count:
            at = _first(columns["value"].is_null())
            stream = "/".join(columns[name][at].as_py() for name in self._target)
            raise ValueInvalid(stream, partition, first + at, "the value is null")
        return pa.RecordBatch.from_pydict(columns)


def _wrong(name: str, types: dict[str, str], needed: str) -> str:
    if name not in types:
        return f"there is no column {name}"
    return f"the column {name} is {types[name]} and must be {needed}"


def _large(column: Any) -> Any:
    if pa.types.is_string(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_binary(column.type):
        return column.cast(pa.large_binary())
    return column


def _check_target(name: str, column: Any, partition: int, first: int) -> None:
    if column.null_count:
        drop = "" if name == "stream" else ", or drop the column and use the option"
        row = first + _first(column.is_null())
        raise TargetInvalid(partition, row, f"the column {name} is null: fill it{drop}")
    for prefix, reason in _INVALID_PREFIXES.items():
        found = pc.starts_with(column, prefix) if prefix else pc.equal(column, "")
        if pc.any(found).as_py():
            raise TargetInvalid(partition, first + _first(found), f"the column {name} {reason}")


def _first(mask: Any) -> int:
    """The index of the first true element."""
    return int(pc.index(mask, pa.scalar(True)).as_py())
