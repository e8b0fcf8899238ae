"""Messages as they are sent."""

import json
from typing import Final

import msgspec

from tailrace.protocol import content_type as content_types
from tailrace.protocol.errors import ContentTypeInvalid
from tailrace.protocol.json_mode import check_value

__all__ = [
    "DEFAULT_CONTENT_TYPE",
    "JSON",
    "as_bytes",
    "check_message",
    "encode_json",
    "is_json",
    "is_text",
]

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
JSON: Final = "application/json"
_encode = msgspec.json.Encoder().encode
_encode_strictly = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode
_encode_escaped = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_BYTES = frozenset((bytes, bytearray, memoryview))


def encode_json(value: object) -> bytes:
    """A value as JSON; besides JSON's own types, those of msgspec (dates, dataclasses …)."""
    if type(value) in _BYTES:
        raise TypeError("bytes are no JSON value: use `append` for encoded messages")
    try:
        data = _encode(value)
    except UnicodeEncodeError:
        # Half of a surrogate pair, which only an escape can represent.
        return _encode_escaped(value).encode()
    except TypeError:
        # The standard library accepts more types of keys.
        return _encode_strictly(value).encode()
    if b"null" in data:
        # msgspec silently encodes NaN as null; the standard library rejects NaN. It takes ten times
        # as long, so it runs only where a null was written.
        _encode_strictly(msgspec.to_builtins(value, str_keys=True))
    return data


def as_bytes(data: object) -> bytes:
    """The bytes to send: text in UTF-8, and a copy of mutable buffers."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"expected bytes or text, not {type(data).__name__}")


def check_message(data: bytes, *, as_json: bool) -> None:
    """Check that bytes can be a message: an invalid one would have its whole batch rejected."""
    if not data:
        raise ValueError("a message has at least one byte")
    if as_json:
        try:
            str(data, "utf-8")
            check_value(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"a message of a JSON stream must be JSON: {error}") from None


def is_text(content_type: str) -> bool:
    """Whether a stream of this content type is sent as text over SSE (§5.8)."""
    try:
        return content_types.is_text(content_type)
    except ContentTypeInvalid:
        return False


def is_json(content_type: str) -> bool:
    """Whether a content type is that of a JSON stream (§7.1)."""
    try:
        return content_types.is_json(content_type)
    except ContentTypeInvalid:
        return False
