"""
JSON messages as rows of a schema; what does not fit is told apart, nothing is bent.

Rule 1: every field of a message is in its column, or, unchanged, in the rescued text, or null.

Rule 2: a number fits a double if it comes back as it was; a field that the schema does not know
fits if it is null. Of an object, only the fields that do not fit are rescued; a list, as a whole.

Most messages fit, and are converted as they are decoded. Only one that does not is decoded again,
piece by piece, so that what is rescued is the text that was sent.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from tailrace.client.encoding import is_json
from tailrace.spark.jobs.materialize.json_schema import INT64_MAX, INT64_MIN, ListOf, Struct, Type
from tailrace.spark.source.type_conversion import Misfit

__all__ = ["JsonRows", "Values", "object_of", "reason_against"]

Values = dict[str, Any]
"""By column."""

# Of all messages of a stream it is the same.
_is_json: Final = lru_cache(is_json)
_decode: Final = msgspec.json.Decoder().decode
_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# `msgspec` refuses numbers beyond a double as invalid, and nesting beyond its stack.
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def reason_against(content_type: str | None, value: bytes) -> str | None:
    """Why a message is no row; None if it is one."""
    if not _is_json(content_type or ""):
        return f"the stream is not of JSON but of {content_type}"
    try:
        # What is only skipped over is not looked at otherwise.
        value.decode()
        _raw_object(value)
    except msgspec.ValidationError:
        return "the message is JSON, but no object"
    except _UNDECODABLE:
        return "the message is not JSON that can be read"
    return None


def object_of(value: bytes) -> dict[str, Any] | None:
    """A message that is an object, decoded; None if some of it can only be kept as text."""
    try:
        found = _decode(value)
    except _UNDECODABLE:
        return None
    return found if isinstance(found, dict) else None


class JsonRows:
    """Makes rows of one schema."""

    def __init__(self, schema: Struct) -> None:
        self._schema = schema
        self._convert = _converter(schema)

    def fits(self, value: dict[str, Any]) -> bool:
        """Whether nothing of a message would be rescued."""
        try:
            self._convert(value)
        except Misfit:
            return False
        return True

    def row(self, value: bytes) -> tuple[Values, str | None]:
        """The columns of a message, and what fits none of them."""
        found = object_of(value)
        if found is not None:
            try:
                columns: Values = self._convert(found)
            except Misfit:
                pass
            else:
                return columns, None
        return _split(value, self._schema)


def _split(raw: bytes, struct: Struct) -> tuple[Values, str | None]:
    """Rule 2, for an object some of which does not fit."""
    known = {field.name: field for field in struct.fields}
    columns: Values = {}
    rest: dict[str, str] = {}
    for name, item in _raw_object(raw).items():
        text = bytes(item)
        if text == b"null":
            continue
        field = known.get(name)
        value, left = (None, text.decode()) if field is None else _part(text, field.type)
        if field is not None:
            columns[field.column] = value
        if left is not None:
            rest[name] = left
    texts = (f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in rest.items())
    return columns, "{" + ",".join(texts) + "}" if rest else None


def _part(raw: bytes, of: Type) -> tuple[Any, str | None]:
    try:
        return _converter(of)(_decode(raw)), None
    except (Misfit, *_UNDECODABLE):
        if isinstance(of, Struct) and raw.startswith(b"{"):
            return _split(raw, of)
        return None, raw.decode()


def _converter(of: Type) -> Callable[[Any], Any]:
    """What turns a decoded value into one of Arrow, or raises `Misfit`."""
    if isinstance(of, ListOf):
        return _list_converter(_converter(of.element))
    if isinstance(of, Struct):
        fields = {field.name: (field.column, _converter(field.type)) for field in of.fields}
        return _struct_converter(fields)
    return _SCALARS[of]


def _list_converter(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def to_list(value: Any) -> list[Any]:
        if type(value) is not list:
            raise Misfit
        return [None if item is None else convert(item) for item in value]

    return to_list


def _struct_converter(
    fields: dict[str, tuple[str, Callable[[Any], Any]]],
) -> Callable[[Any], Any]:
    def to_struct(value: Any) -> Values:
        if type(value) is not dict:
            raise Misfit
        columns = {}
        for name, item in value.items():
            if item is None:
                continue
            if name not in fields:
                raise Misfit
            column, convert = fields[name]
            columns[column] = convert(item)
        return columns

    return to_struct


def _to_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise Misfit
    return value


def _to_long(value: Any) -> int:
    # Not `isinstance`: true is an int to Python.
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise Misfit
    return value


def _to_double(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise Misfit
    try:
        number = float(value)
    except OverflowError:
        raise Misfit from None
    if number != value:
        raise Misfit
    return number


def _to_string(value: Any) -> str:
    if type(value) is not str:
        raise Misfit
    return value


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "boolean": _to_boolean,
    "long": _to_long,
    "double": _to_double,
    "string": _to_string,
}
