"""
Converts JSON messages to rows of a schema without any loss.

Rule 1: every field of a message is in its column, or unchanged in `_rescued`, or null.

Rule 2: a number matches a double if the conversion is exact; a field that is not in the schema
matches if it is null. Of an object only the mismatching fields are rescued; a list, as a whole.

Most messages match, and are converted after one decoding. Only others are decoded again, field by
field, to rescue the text that was sent.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from tailrace.client.encoding import is_json
from tailrace.spark.jobs.materialize.json_schema import INT64_MAX, INT64_MIN, ListOf, Struct, Type
from tailrace.spark.source.type_conversion import TypeMismatch

__all__ = ["JsonRows", "Values", "decode_object", "why_not_object"]

Values = dict[str, Any]
"""By column."""

# Cached: all messages of a stream have the same type.
_is_json: Final = lru_cache(is_json)
_decode: Final = msgspec.json.Decoder().decode
_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# `msgspec` rejects numbers beyond a double, and deep nesting.
_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def why_not_object(content_type: str | None, value: bytes) -> str | None:
    """Why a message is not a JSON object; None if it is one."""
    if not _is_json(content_type or ""):
        return f"the stream is not of JSON but of {content_type}"
    try:
        # The decoder does not check the encoding of values that it skips.
        value.decode()
        _raw_object(value)
    except msgspec.ValidationError:
        return "the message is JSON, but not an object"
    except _UNDECODABLE:
        return "the message is not JSON that can be decoded"
    return None


def decode_object(value: bytes) -> dict[str, Any] | None:
    """A message that is an object, decoded; None if a part of it cannot be decoded."""
    try:
        found = _decode(value)
    except _UNDECODABLE:
        return None
    return found if isinstance(found, dict) else None


class JsonRows:
    """Converts messages to rows of one schema."""

    def __init__(self, schema: Struct) -> None:
        self._schema = schema
        self._convert = _converter(schema)

    def fits(self, value: dict[str, Any]) -> bool:
        """Whether all fields of a message have columns."""
        try:
            self._convert(value)
        except TypeMismatch:
            return False
        return True

    def row(self, value: bytes) -> tuple[Values, str | None]:
        """The columns of a message, and the text of the fields that match none."""
        found = decode_object(value)
        if found is not None:
            try:
                columns: Values = self._convert(found)
            except TypeMismatch:
                pass
            else:
                return columns, None
        return _split(value, self._schema)


def _split(raw: bytes, struct: Struct) -> tuple[Values, str | None]:
    """Rule 2, for an object with a mismatch."""
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
    except (TypeMismatch, *_UNDECODABLE):
        if isinstance(of, Struct) and raw.startswith(b"{"):
            return _split(raw, of)
        return None, raw.decode()


def _converter(of: Type) -> Callable[[Any], Any]:
    """A function that converts a decoded value for Arrow, or raises `TypeMismatch`."""
    if isinstance(of, ListOf):
        convert_element = _converter(of.element)

        def to_list(value: Any) -> list[Any]:
            if type(value) is not list:
                raise TypeMismatch
            return [None if item is None else convert_element(item) for item in value]

        return to_list
    if isinstance(of, Struct):
        fields = {field.name: (field.column, _converter(field.type)) for field in of.fields}

        def to_struct(value: Any) -> Values:
            if type(value) is not dict:
                raise TypeMismatch
            columns = {}
            for name, item in value.items():
                if item is None:
                    continue
                if name not in fields:
                    raise TypeMismatch
                column, convert = fields[name]
                columns[column] = convert(item)
            return columns

        return to_struct
    return _SCALARS[of]


def _to_long(value: Any) -> int:
    # Not `isinstance`: a bool is an int in Python.
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise TypeMismatch
    return value


def _to_double(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise TypeMismatch
    try:
        number = float(value)
    except OverflowError:
        raise TypeMismatch from None
    if number != value:
        raise TypeMismatch
    return number


def _to_exactly(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeMismatch
        return value

    return check


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "boolean": _to_exactly(bool),
    "long": _to_long,
    "double": _to_double,
    "string": _to_exactly(str),
}
