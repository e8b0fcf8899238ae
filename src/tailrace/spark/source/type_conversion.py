"""Converts JSON values to Arrow types. A conversion that would lose something is an error."""

import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa

__all__ = ["EXACT_MAX", "TypeMismatch", "convert"]

EXACT_MAX: Final = 2**53
"""Above this a double does not hold every integer."""
# Finer than microseconds, the unit of the type.
_FINER: Final = re.compile(rb"[.,][0-9]{7}")
_raw_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class TypeMismatch(Exception):
    """A value cannot be converted to the type without loss."""


def convert(raw: bytes, kind: pa.DataType) -> Any:
    """
    A JSON value as the Python object that `pa.array` takes for a type; null is of every type.

    Raises:
        TypeMismatch: The value is not of the type.
    """
    if raw == b"null":
        return None
    try:
        return _convert(raw, kind)
    except (msgspec.DecodeError, ValueError, InvalidOperation, OverflowError):
        raise TypeMismatch from None


def _convert(raw: bytes, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return msgspec.json.decode(raw, type=str)
    if pa.types.is_boolean(kind):
        return msgspec.json.decode(raw, type=bool)
    if pa.types.is_integer(kind):
        value = msgspec.json.decode(raw, type=int)
        if not -(1 << (kind.bit_width - 1)) <= value < 1 << (kind.bit_width - 1):
            raise TypeMismatch
        return value
    if pa.types.is_floating(kind):
        return _float(raw, kind)
    if pa.types.is_decimal(kind):
        return _decimal(raw, kind)
    if pa.types.is_timestamp(kind):
        if _FINER.search(raw):
            raise TypeMismatch
        moment = datetime.fromisoformat(msgspec.json.decode(raw, type=str))
        if kind.tz is None:
            # The type has no zone, so the value must not have one.
            if moment.tzinfo is not None:
                raise TypeMismatch
            return moment
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if pa.types.is_date(kind):
        return date.fromisoformat(msgspec.json.decode(raw, type=str))
    if pa.types.is_list(kind):
        return [convert(bytes(item), kind.value_type) for item in _raw_list(raw)]
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return [
            (name, convert(bytes(item), kind.item_type)) for name, item in _raw_object(raw).items()
        ]
    if pa.types.is_struct(kind):
        return _struct(raw, kind)
    raise TypeMismatch


def _float(raw: bytes, kind: pa.DataType) -> float:
    """An integer that the type cannot hold exactly is a mismatch."""
    value = msgspec.json.decode(raw, type=float)
    if kind.bit_width == 32:
        # Raises OverflowError if it is too large.
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    if raw.lstrip(b"-").isdigit() and int(raw) != int(value):
        raise TypeMismatch
    return value


def _decimal(raw: bytes, kind: pa.DataType) -> Decimal:
    value = Decimal(raw.decode())
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > kind.scale:
        raise TypeMismatch
    if value.adjusted() + 1 > kind.precision - kind.scale:
        raise TypeMismatch
    return value


def _struct(raw: bytes, kind: pa.DataType) -> dict[str, Any]:
    """A field that the type does not have is a mismatch: it would be lost."""
    names = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
    found = _raw_object(raw)
    if found.keys() - names.keys():
        raise TypeMismatch
    return {name: convert(bytes(item), names[name]) for name, item in found.items()}
