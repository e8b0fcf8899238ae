"""JSON, as it is sent."""

import json

import msgspec

from tailrace.protocol import content_type as content_types
from tailrace.protocol.errors import ContentTypeInvalid

__all__ = ["as_bytes", "check_message", "encode_json", "is_json"]

_encode = msgspec.json.Encoder().encode
_encode_strictly = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode
_check = msgspec.json.Decoder(msgspec.Raw).decode
_BYTES = frozenset((bytes, bytearray, memoryview))


def encode_json(value: object) -> bytes:
    """
    A value as JSON: what JSON has, and what msgspec knows besides (dates, UUIDs, dataclasses …).

    Raises:
        TypeError, ValueError: It is none.
    """
    if type(value) in _BYTES:
        raise TypeError("bytes are no JSON; what is encoded already is for `append`")
    try:
        data = _encode(value)
    except TypeError:
        # It knows fewer kinds of keys.
        return _encode_strictly(value).encode()
    if b"null" in data:
        # Perhaps a NaN, which msgspec makes null of, silently. The standard library refuses it; it
        # takes ten times as long, so it is asked only then.
        _encode_strictly(msgspec.to_builtins(value, str_keys=True))
    return data


def as_bytes(data: object) -> bytes:
    """
    What is to be sent, as it is now: text in UTF-8, and a copy of what may change.

    Raises:
        TypeError: It is neither text nor bytes.
    """
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"bytes or text are needed, and not {type(data).__name__}")


def check_message(data: bytes, *, as_json: bool) -> None:
    """
    See whether bytes can be a message: one that cannot would take its whole batch with it.

    Raises:
        ValueError: They cannot.
    """
    if not data:
        raise ValueError("a message has a byte at least")
    if as_json:
        try:
            str(data, "utf-8")
            _check(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"what is appended to a JSON stream must be JSON: {error}") from None


def is_json(content_type: str) -> bool:
    """Whether a stream of this type has messages of JSON; the rule is the protocol's (§7.1)."""
    try:
        return content_types.is_json(content_type)
    except ContentTypeInvalid:
        return False
