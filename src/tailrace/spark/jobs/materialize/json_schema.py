"""
The schema of JSON messages: found from what comes, widened, never narrowed.

Rule 1: a field that is new gets a column; a column never goes, and never changes its name.

Rule 2: long widens to double, unless the table has integers there that a double would round (beyond
2^53). Any other contradiction keeps the column as it is: the value goes to `_rescued`.

Rule 3: null, an empty list, an empty object and a number beyond 64 bits say nothing of a type.

Rule 4: no two columns of a struct differ in case alone, and none is called as the table's own:
formats and engines disagree on such names, and on dots, blanks and brackets in them. A column is
called as its field is, with `_` for such characters and `_2`, `_3` … where that is taken. Which
field it holds is kept with it.

This file knows no Spark and no files: it maps (schema, value) to a schema.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.spark.tables.schemas import Path

__all__ = [
    "COLUMNS_MAX",
    "EMPTY",
    "OWN_COLUMNS",
    "Field",
    "ListOf",
    "Struct",
    "Type",
    "dump_type",
    "infer",
    "keep_longs",
    "load_type",
    "spark_type",
    "widen",
]

COLUMNS_MAX: Final = 1000
"""Objects with ids for keys would have a column for each: what is beyond is rescued."""
DEPTH_MAX: Final = 12
OWN_COLUMNS: Final = ("_stream", "_message", "_offset", "_time", "_rescued")
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

_AWKWARD: Final = re.compile(r"[\x00-\x20.,;:{}()\[\]<>=\"'`/\\\x7f]")


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
    """Objects with these fields, some of which each may lack."""

    fields: tuple[Field, ...] = ()


Type = str | ListOf | Struct
"""`boolean`, `long`, `double` and `string` by name."""
EMPTY: Final = Struct()


@dataclass
class _Room:
    """For how many columns there still is room."""

    left: int = field(default=COLUMNS_MAX)

    def take(self, columns: int) -> bool:
        if columns > self.left:
            return False
        self.left -= columns
        return True


def infer(value: Any, depth: int = 0) -> Type | None:
    """The type of a JSON value; None if it says nothing (rule 3)."""
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
        struct = _add(EMPTY, [(name, of) for name, of in found if of is not None], (), _Room())
        return struct if struct.fields else None
    return _infer_list(value, depth)


def _infer_list(values: list[Any], depth: int) -> Type | None:
    element: Type | None = None
    for value in values:
        of = infer(value, depth + 1)
        if of is not None:
            element = of if element is None else _widen(element, of, _Room())
    return None if element is None else ListOf(element)


def widen(
    schema: Struct,
    other: Struct,
    reserved: Iterable[str] = OWN_COLUMNS,
    columns_max: int = COLUMNS_MAX,
) -> Struct:
    """A schema that holds what this one does, and of the other one what does not contradict it."""
    room = _Room(columns_max - _columns(schema))
    return _add(schema, [(field.name, field.type) for field in other.fields], reserved, room)


def keep_longs(schema: Struct, paths: Collection[Path]) -> Struct:
    """Rule 2: the schema with longs at these places, by their columns."""
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


def _widen(one: Type, other: Type, room: _Room) -> Type:
    if one == other:
        return one
    if {one, other} == {"long", "double"}:
        return "double"
    if isinstance(one, ListOf) and isinstance(other, ListOf):
        return ListOf(_widen(one.element, other.element, room))
    if isinstance(one, Struct) and isinstance(other, Struct):
        return _add(one, [(field.name, field.type) for field in other.fields], (), room)
    return one


def _add(
    struct: Struct, found: list[tuple[str, Type]], reserved: Iterable[str], room: _Room
) -> Struct:
    fields = {known.name: known for known in struct.fields}
    taken = {*reserved, *(known.column.lower() for known in struct.fields)}
    for name, of in found:
        known = fields.get(name)
        if known is not None:
            fields[name] = Field(name, known.column, _widen(known.type, of, room))
        elif room.take(_columns(of)):
            column = _column(name, taken)
            taken.add(column.lower())
            fields[name] = Field(name, column, of)
    return Struct(tuple(fields.values()))


def _column(name: str, taken: set[str]) -> str:
    """Rule 4."""
    plain = _AWKWARD.sub("_", name) or "_"
    column, number = plain, 1
    while column.lower() in taken:
        number += 1
        column = f"{plain}_{number}"
    return column


def _columns(of: Type) -> int:
    """How many columns a type has in a file."""
    if isinstance(of, ListOf):
        return _columns(of.element)
    return sum(_columns(field.type) for field in of.fields) if isinstance(of, Struct) else 1


def dump_type(of: Type) -> Any:
    """As JSON, for keeping."""
    if isinstance(of, ListOf):
        return {"list": dump_type(of.element)}
    if isinstance(of, Struct):
        return {"struct": [[f.name, f.column, dump_type(f.type)] for f in of.fields]}
    return of


def load_type(kept: Any) -> Type:
    """The inverse of `dump_type`."""
    if isinstance(kept, str):
        return kept
    if "list" in kept:
        return ListOf(load_type(kept["list"]))
    fields = (Field(name, column, load_type(of)) for name, column, of in kept["struct"])
    return Struct(tuple(fields))


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
