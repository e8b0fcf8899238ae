"""
The rows of a DataFrame as the sink handles them: the same columns, of the same types, always.

    bucket, stream    where a row goes, if columns say so
    content_type      if a column says so
    order0, order1 …  the columns of `orderBy`
    row               its number in the partition, in the order of arrival
    value             binary

Rule 1: what is wrong with the columns is said on the driver, before anything runs; what is wrong
with a row, before its request is sent.

Texts and bytes get offsets of 64 bits: rows are joined, and 2 GiB of them would overflow others.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.spark.options import WriteOptions
from tailrace.spark.sink.errors import ColumnsInvalid, TargetInvalid, ValueInvalid

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Shape"]

_TEXT: Final = frozenset(("string", "varchar", "char"))
_NUMBER: Final = frozenset(("byte", "short", "integer", "long", "float", "double", "decimal"))
_TIME: Final = frozenset(("date", "timestamp", "timestamp_ntz"))
_ORDERED: Final = _TEXT | _NUMBER | _TIME | {"binary", "boolean"}
_NOT_NAMES: Final = {
    "": "is empty",
    # The client takes it away: two names would be one stream, and one of them a copy to it.
    "/": "begins with a slash: leave that out",
    "http://": "has a whole URL: rows go to streams of the option url",
    "https://": "has a whole URL: rows go to streams of the option url",
}
"""How names of streams do not begin."""


@dataclass(frozen=True)
class Shape:
    """Which columns rows have."""

    has_bucket: bool
    has_stream: bool
    has_content_type: bool
    order_by: tuple[str, ...]
    stable: bool
    """Whether rows come in the same order at every attempt."""

    @classmethod
    def of(cls, options: WriteOptions, schema: "StructType") -> "Shape":
        """
        What to make of a DataFrame.

        Raises:
            ColumnsInvalid: It cannot be written.
        """
        types = {field.name: field.dataType.typeName() for field in schema.fields}
        order_by = tuple(_names(options.order_by or ""))
        if types.get("value") not in _TEXT | {"binary"}:
            raise ColumnsInvalid(_wrong("value", types, "binary or string"))
        for name in ("bucket", "stream", "content_type"):
            if name in types and types[name] not in _TEXT:
                raise ColumnsInvalid(_wrong(name, types, "string"))
        for name in order_by:
            if types.get(name) not in _ORDERED:
                raise ColumnsInvalid(_wrong(name, types, "something that can be ordered"))
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
        """What puts rows into one order: by stream, and within it."""
        target = tuple(
            name
            for name, there in (("bucket", self.has_bucket), ("stream", self.has_stream))
            if there
        )
        if not self.order_by:
            return (*target, "row")
        # The value last: rows that are still equal then are the same message.
        return (*target, *(f"order{at}" for at in range(len(self.order_by))), "value")

    @property
    def comes_in_order(self) -> bool:
        """Whether rows can be sent as they come, without gathering them."""
        return not self.has_stream and not self.order_by

    def rows(self, partition: int, batches: Iterable[Any]) -> Iterator[Any]:
        """
        A partition's record batches in this shape.

        Raises:
            TargetInvalid: A row does not say where to go.
            ValueInvalid: A row has no value.
        """
        first = 0
        for batch in batches:
            yield self._shaped(partition, first, batch)
            first += batch.num_rows

    def _shaped(self, partition: int, first: int, batch: Any) -> Any:
        columns = {}
        for name, there in (("bucket", self.has_bucket), ("stream", self.has_stream)):
            if there:
                columns[name] = _large(batch.column(name))
                _check_target(name, columns[name], partition, first)
        if self.has_content_type:
            columns["content_type"] = _large(batch.column("content_type"))
        for at, name in enumerate(self.order_by):
            columns[f"order{at}"] = _large(batch.column(name))
        columns["row"] = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
        columns["value"] = _large(batch.column("value")).cast(pa.large_binary())
        if columns["value"].null_count:
            row = first + _first(columns["value"].is_null())
            raise ValueInvalid(_name_at(columns, row - first), partition, row, "the value is null")
        return pa.RecordBatch.from_pydict(columns)


def _names(order_by: str) -> list[str]:
    return [name.strip() for name in order_by.split(",") if name.strip()]


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
        drop = "" if name == "stream" else ", or drop the column: then the option says it"
        row = first + _first(column.is_null())
        raise TargetInvalid(partition, row, f"the column {name} is null: fill it{drop}")
    for starts, reason in _NOT_NAMES.items():
        found = pc.starts_with(column, starts) if starts else pc.equal(column, "")
        if pc.any(found).as_py():
            raise TargetInvalid(partition, first + _first(found), f"the column {name} {reason}")


def _first(mask: Any) -> int:
    """The place of the first true one."""
    return int(pc.index(mask, pa.scalar(True)).as_py())


def _name_at(columns: dict[str, Any], at: int) -> str:
    names: Sequence[str] = ("bucket", "stream")
    return "/".join(columns[name][at].as_py() for name in names if name in columns)
