"""Whether a JSON value fits a type of Arrow, and what it is then. Nothing is bent to fit."""

import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa

__all__ = ["EXACT_MAX", "Misfit", "fit"]

EXACT_MAX: Final = 2**53
"""From here on a double does not hold every whole number."""
# Finer than microseconds, which is as fine as it is kept.
_FINER: Final = re.compile(rb"[.,][0-9]{7}")
_raw_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Misfit(Exception):
    """A value is not of the type."""


def fit(raw: bytes, kind: pa.DataType) -> Any:
    """
    A JSON value as what `pa.array` takes for a type; null fits all.

    Raises:
        Misfit: It does not fit.
    """
    if raw == b"null":
        return None
    try:
        return _fit(raw, kind)
    except (msgspec.DecodeError, ValueError, InvalidOperation, OverflowError):
        raise Misfit from None


def _fit(raw: bytes, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return msgspec.json.decode(raw, type=str)
    if pa.types.is_boolean(kind):
        return msgspec.json.decode(raw, type=bool)
    if pa.types.is_integer(kind):
        value = msgspec.json.decode(raw, type=int)
        if not -(1 << (kind.bit_width - 1)) <= value < 1 << (kind.bit_width - 1):
            raise Misfit
        return value
    if pa.types.is_floating(kind):
        return _float(raw, kind)
    if pa.types.is_decimal(kind):
        return _decimal(raw, kind)
    if pa.types.is_timestamp(kind):
        if _FINER.search(raw):
            raise Misfit
        moment = datetime.fromisoformat(msgspec.json.decode(raw, type=str))
        if kind.tz is None:
            # A time without a zone, as the type is: one with a zone does not fit.
            if moment.tzinfo is not None:
                raise Misfit
            return moment
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if pa.types.is_date(kind):
        return date.fromisoformat(msgspec.json.decode(raw, type=str))
    if pa.types.is_list(kind):
        return [fit(bytes(item), kind.value_type) for item in _raw_list(raw)]
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return [(name, fit(bytes(item), kind.item_type)) for name, item in _raw_object(raw).items()]
    if pa.types.is_struct(kind):
        return _struct(raw, kind)
    raise Misfit


def _float(raw: bytes, kind: pa.DataType) -> float:
    """A whole number that the type cannot hold exactly would be bent, as would a larger one."""
    value = msgspec.json.decode(raw, type=float)
    if kind.bit_width == 32:
        # Raises OverflowError where it is too large.
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    if raw.lstrip(b"-").isdigit() and int(raw) != int(value):
        raise Misfit
    return value


def _decimal(raw: bytes, kind: pa.DataType) -> Decimal:
    value = Decimal(raw.decode())
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > kind.scale:
        raise Misfit
    if value.adjusted() + 1 > kind.precision - kind.scale:
        raise Misfit
    return value


def _struct(raw: bytes, kind: pa.DataType) -> dict[str, Any]:
    """A field that the type does not have is a misfit: it would be lost."""
    names = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
    found = _raw_object(raw)
    if found.keys() - names.keys():
        raise Misfit
    return {name: fit(bytes(item), names[name]) for name, item in found.items()}
