"""
How a table's schema may change from one batch to the next.

Rule 1: a schema only grows. A column that a batch does not have stays, and is null there.

Rule 2: the one change of a type is long to double. Files cannot be read so (neither Spark nor
Iceberg does it), so the table's files are written again, once. A double holds integers exactly up
to 2^53: a column with one beyond that is not changed (`longs_to_doubles` tells which to look at).

A schema is Spark's own JSON form of it here, so that these decisions need no Spark.
"""

from typing import Any, Final

from tailrace.spark.tables.errors import SchemaConflict

__all__ = ["NO_COLUMNS", "Path", "SchemaJson", "grown", "longs_to_doubles", "retyped"]

SchemaJson = dict[str, Any]
"""`StructType.jsonValue()`: {"type": "struct", "fields": [{"name", "type", …}, …]}"""
Path = tuple[str | None, ...]
"""Of a value in a row: names of columns, and None for the elements of a list."""
NO_COLUMNS: Final[SchemaJson] = {"type": "struct", "fields": []}


def grown(old: SchemaJson, new: SchemaJson) -> SchemaJson:
    """
    The table's schema after a batch of schema `new`: what was there first, then what is added.

    Raises:
        SchemaConflict: A column would have to be of another type.
    """
    merged: SchemaJson = _merge("", old, _loose(new))
    return merged


def retyped(old: SchemaJson, new: SchemaJson) -> SchemaJson | None:
    """The old columns with the types that they have in `new`; None if none has another."""
    same: SchemaJson = _narrow(old, new)
    return None if same == old else same


def longs_to_doubles(old: Any, new: Any, path: Path = ()) -> list[Path]:
    """Where there are longs in `old` and doubles in `new`, which may have less than all of it."""
    kinds = _kind(old), _kind(new)
    if kinds == ("long", "double"):
        return [path]
    if kinds == ("array", "array"):
        return longs_to_doubles(old["elementType"], new["elementType"], (*path, None))
    if kinds != ("struct", "struct"):
        return []
    types = {field["name"]: field["type"] for field in new["fields"]}
    both = [field for field in old["fields"] if field["name"] in types]
    found = (longs_to_doubles(f["type"], types[f["name"]], (*path, f["name"])) for f in both)
    return [each for some in found for each in some]


def _merge(path: str, old: Any, new: Any) -> Any:
    if old == new:
        return old
    kinds = {_kind(old), _kind(new)}
    if kinds == {"long", "double"}:
        return "double"
    if kinds == {"struct"}:
        return {"type": "struct", "fields": _merge_fields(path, old["fields"], new["fields"])}
    if kinds == {"array"}:
        element = _merge(f"{path}[]", old["elementType"], new["elementType"])
        return {"type": "array", "elementType": element, "containsNull": True}
    raise SchemaConflict(path, _kind(old), _kind(new))


def _merge_fields(path: str, old: list[SchemaJson], new: list[SchemaJson]) -> list[SchemaJson]:
    offered = {field["name"]: field for field in new}
    merged = []
    for field in old:
        other = offered.pop(field["name"], field)
        below = f"{path}.{field['name']}".lstrip(".")
        merged.append({**field, "type": _merge(below, field["type"], other["type"])})
    return merged + list(offered.values())


def _loose(of: Any) -> Any:
    """Without what a batch says of itself alone: that it has no nulls, and comments."""
    if isinstance(of, str):
        return of
    if of["type"] == "array":
        return {**of, "elementType": _loose(of["elementType"]), "containsNull": True}
    if of["type"] != "struct":
        return of
    fields = [
        {"name": f["name"], "type": _loose(f["type"]), "nullable": True, "metadata": {}}
        for f in of["fields"]
    ]
    return {"type": "struct", "fields": fields}


def _narrow(old: Any, new: Any) -> Any:
    """The shape of `old` with the types of `new`, which has all of it."""
    if _kind(old) not in ("array", "struct"):
        return new
    if old["type"] == "array":
        return {**old, "elementType": _narrow(old["elementType"], new["elementType"])}
    types = {field["name"]: field["type"] for field in new["fields"]}
    fields = [{**f, "type": _narrow(f["type"], types[f["name"]])} for f in old["fields"]]
    return {**old, "fields": fields}


def _kind(of: Any) -> str:
    return of if isinstance(of, str) else str(of["type"])
