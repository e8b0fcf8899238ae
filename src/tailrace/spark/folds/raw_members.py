"""
The members of a JSON object, each as it was sent.

`msgspec` does this, but rejects half of an escaped surrogate pair, such as `"\\ud83d"`, which RFC
8259 allows and servers store. The standard library reads it, a hundred times as slowly.
"""

import json
import re
from typing import Final

import msgspec

__all__ = ["encode_name", "raw_members"]

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode
_scan: Final = json.JSONDecoder().raw_decode
_BETWEEN: Final = re.compile(r"[ \t\n\r,:]*")


def raw_members(value: bytes) -> dict[str, bytes]:
    """
    The members of an object.

    Raises:
        msgspec.DecodeError: It is not an object, or not JSON.
        RecursionError: It is nested too deeply.
    """
    try:
        return {name: bytes(member) for name, member in _decode(value).items()}
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        if b"\\u" not in value:
            raise
        try:
            return _scan_members(value.decode())
        except ValueError:
            raise error from None


def _scan_members(text: str) -> dict[str, bytes]:
    # The whole first: what is between the parts of a valid object needs no check.
    if not isinstance(json.loads(text), dict):
        raise ValueError("not an object")
    members: dict[str, bytes] = {}
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = _scan(text, at)
        start = _skip(text, at)
        _, end = _scan(text, start)
        members[name] = text[start:end].encode()
        at = _skip(text, end)
    return members


def _skip(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    assert match is not None
    return match.end()


def encode_name(name: str) -> bytes:
    """A name as a JSON string."""
    try:
        return _encode(name)
    except UnicodeEncodeError:
        return json.dumps(name).encode()
