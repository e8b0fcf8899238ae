"""JSON, as it is sent."""

import json

__all__ = ["encode_json", "is_json"]

# Made once: `json.dumps` with options makes one for each value. NaN and Infinity are no JSON.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_json(value: object) -> bytes:
    """
    A value as JSON.

    Raises:
        TypeError, ValueError: It is none.
    """
    return _encode(value).encode()


def is_json(content_type: str) -> bool:
    """§7.1: whether a stream of this type has messages, each a JSON value."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")
