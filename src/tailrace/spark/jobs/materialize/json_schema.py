"""
The schema of JSON messages: inferred from messages, widened, never narrowed.

Rule 1: a new field gets a column; a column is never removed or renamed.

Rule 2: long widens to double, unless the table has integers there that a double would round (beyond
2^53). Any other conflict leaves the column unchanged: the value goes to `_rescued`.

Rule 3: null, an empty list, an empty object and an integer beyond 64 bits have no type.

Rule 4: no two columns of a struct differ in case alone, and none has the name of a metadata column:
formats and engines treat such names differently, and also dots, blanks and brackets. The name of a
column is that of its field, with `_` for such characters and a suffix `_2`, `_3` … if it is taken.
The name of the field is stored with the column.

This module uses neither Spark nor files: it maps (schema, value) to a schema.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from tailrace.spark.tables.schemas import Path

__all__ = [
    "COLUMNS_MAX",
    "EMPTY",
    "METADATA_COLUMNS",
    "Field",
    "ListOf",
    "Struct",
    "Type",
    "dump_type",
    "infer",
    "keep_longs",
    "load_struct",
    "spark_type",
    "widen",
]

COLUMNS_MAX: Final = 1000
"""Bounds the columns of objects that have ids as names; further fields are rescued."""
DEPTH_MAX: Final = 12
METADATA_COLUMNS: Final = ("_stream", "_message", "_offset", "_time", "_rescued")
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

_UNSAFE: Final = re.compile(r"[\x00-\x20.,;:{}()\[\]<>=\"'`/\\\x7f]")


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose elements are of one type."""

    element: "Type"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of JSON objects, and the column that holds it."""

    name: str
    column: str
    type: "Type"


@dataclass(frozen=True, slots=True)
class Struct:
    """Objects with these fields, all optional."""

    fields: tuple[Field, ...] = ()


Type = str | ListOf | Struct
"""A string is one of `boolean`, `long`, `double` and `string`."""
EMPTY: Final = Struct()


@dataclass
class _ColumnBudget:
    """The number of columns that may still be added."""

    left: int = COLUMNS_MAX

    def take(self, columns: int) -> bool:
        if columns > self.left:
            return False
        self.left -= columns
        return True


def infer(value: Any, depth: int = 0) -> Type | None:
    """The type of a JSON value; None if it has none (rule 3)."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if INT64_MIN <= value <= INT64_MAX else None
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "string"
    if value is None or depth >= DEPTH_MAX:
        return None
    if isinstance(value, dict):
        found = ((name, infer(item, depth + 1)) for name, item in value.items())
        struct = _add(
            EMPTY, [(name, of) for name, of in found if of is not None], (), _ColumnBudget()
        )
        return struct if struct.fields else None
    element: Type | None = None
    for item in value:
        of = infer(item, depth + 1)
        if of is not None:
            element = of if element is None else _widen(element, of, _ColumnBudget())
    return None if element is None else ListOf(element)


def widen(
    schema: Struct,
    other: Struct,
    reserved: Iterable[str] = METADATA_COLUMNS,
    columns_max: int = COLUMNS_MAX,
) -> Struct:
    """This schema with the fields of another one that do not conflict."""
    budget = _ColumnBudget(columns_max - _columns(schema))
    return _add(schema, [(field.name, field.type) for field in other.fields], reserved, budget)


def keep_longs(schema: Struct, paths: Collection[Path]) -> Struct:
    """Rule 2: the schema with type long at these column paths."""
    kept = _keep_longs(schema, paths, ())
    assert isinstance(kept, Struct)
    return kept


def _keep_longs(of: Type, paths: Collection[Path], at: Path) -> Type:
    if isinstance(of, ListOf):
        return ListOf(_keep_longs(of.element, paths, (*at, None)))
    if isinstance(of, Struct):
        types = (_keep_longs(field.type, paths, (*at, field.column)) for field in of.fields)
        pairs = zip(of.fields, types, strict=True)
        return Struct(tuple(Field(field.name, field.column, kept) for field, kept in pairs))
    return "long" if at in paths else of


def _widen(one: Type, other: Type, budget: _ColumnBudget) -> Type:
    if one == other:
        return one
    if {one, other} == {"long", "double"}:
        return "double"
    if isinstance(one, ListOf) and isinstance(other, ListOf):
        return ListOf(_widen(one.element, other.element, budget))
    if isinstance(one, Struct) and isinstance(other, Struct):
        return _add(one, [(field.name, field.type) for field in other.fields], (), budget)
    return one


def _add(
    struct: Struct, found: list[tuple[str, Type]], reserved: Iterable[str], budget: _ColumnBudget
) -> Struct:
    fields = {known.name: known for known in struct.fields}
    taken = {*reserved, *(known.column.lower() for known in struct.fields)}
    for name, of in found:
        known = fields.get(name)
        if known is not None:
            fields[name] = Field(name, known.column, _widen(known.type, of, budget))
        elif budget.take(_columns(of)):
            column = _column(name, taken)
            taken.add(column.lower())
            fields[name] = Field(name, column, of)
    return Struct(tuple(fields.values()))


def _column(name: str, taken: set[str]) -> str:
    """Rule 4."""
    safe = _UNSAFE.sub("_", name) or "_"
    column, number = safe, 1
    while column.lower() in taken:
        number += 1
        column = f"{safe}_{number}"
    return column


def _columns(of: Type) -> int:
    """The number of columns of a type in a file."""
    if isinstance(of, ListOf):
        return _columns(of.element)
    return sum(_columns(field.type) for field in of.fields) if isinstance(of, Struct) else 1


def dump_type(of: Type) -> Any:
    """A type in the JSON form that is stored."""
    if isinstance(of, ListOf):
        return {"list": dump_type(of.element)}
    if isinstance(of, Struct):
        return {"struct": [[f.name, f.column, dump_type(f.type)] for f in of.fields]}
    return of


def load_struct(stored: Any) -> Struct:
    """The inverse of `dump_type`, for a struct."""
    fields = (Field(name, column, _load_type(of)) for name, column, of in stored["struct"])
    return Struct(tuple(fields))


def _load_type(stored: Any) -> Type:
    if isinstance(stored, str):
        return stored
    return ListOf(_load_type(stored["list"])) if "list" in stored else load_struct(stored)


def spark_type(of: Type) -> Any:
    """The type in Spark's JSON form."""
    if isinstance(of, ListOf):
        return {"type": "array", "elementType": spark_type(of.element), "containsNull": True}
    if isinstance(of, Struct):
        fields = [
            {"name": f.column, "type": spark_type(f.type), "nullable": True, "metadata": {}}
            for f in of.fields
        ]
        return {"type": "struct", "fields": fields}
    return of
