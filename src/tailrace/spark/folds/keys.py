"""
The keys of messages: their path, and their equality.

A path names nested members of objects: `id`, `a.b`, or a JSON pointer, `/a/b`, for names with dots.
Two keys are equal if they are the same JSON value: `"a"` and `"\\u0061"`, `100` and `1e2`; but `1`,
`"1"` and `true` are three keys.
"""

import json
import re
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec

from tailrace.spark.folds.base import FoldInvalid
from tailrace.spark.folds.raw_members import raw_members

__all__ = ["KeyMissing", "KeyReader", "key_reader", "parse_path", "pointer"]

_DIGITS_MAX: Final = 4300
"""Python's default limit for integers; longer keys are compared as text."""
_NUMBER: Final = re.compile(rb"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,18}))?")


class KeyMissing(ValueError):
    """A message has no key, or one of an unsupported type."""


def parse_path(fold: str, text: str) -> tuple[str, ...]:
    """
    The names of a path, `a.b` or `/a/b`.

    Raises:
        FoldInvalid: It has an empty or unsupported name.
    """
    parts = text.split(".")
    if text.startswith("/"):
        parts = [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]
    if not all(parts):
        raise FoldInvalid(fold, f"the key {text!r} has an empty name; write id, a.b or /a/b")
    if any(char in part for part in parts for char in '"\\') or not text.isprintable():
        reason = f"the key {text!r} has a quotation mark, a backslash or a control character"
        raise FoldInvalid(fold, reason)
    return tuple(parts)


def pointer(path: Sequence[str]) -> str:
    """A path as a JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


class KeyReader:
    """Reads only the key of each message."""

    def __init__(self, path: Sequence[str]) -> None:
        self._path = path
        self._decode = _decoder(path, str | int)
        self._decode_raw = _decoder(path, msgspec.Raw)
        self._get: Callable[[Any], Any] = attrgetter(".".join(["at"] * len(path)))

    def all(self, values: Sequence[bytes]) -> list[Hashable]:
        """
        The keys of messages, if all are strings or integers.

        Raises:
            msgspec.ValidationError: Some are not: use `one`, which takes ten times as long.
        """
        return list(map(self._get, map(self._decode, values)))

    def one(self, value: bytes) -> Hashable:
        """
        The key of one message.

        Raises:
            KeyMissing: It has no key.
        """
        try:
            raw = bytes(self._get(self._decode_raw(value)))
        except msgspec.ValidationError as error:
            raise KeyMissing(f"it has no key: {error}") from None
        except msgspec.DecodeError as error:
            raw = self._scan(value, error)
        return _canonical(raw)

    def _scan(self, value: bytes, error: msgspec.DecodeError) -> bytes:
        """The key of a message that has half of a surrogate pair."""
        try:
            for name in self._path:
                value = raw_members(value)[name]
        except (msgspec.DecodeError, KeyError):
            raise KeyMissing(f"it has no key: {error}") from None
        return value


key_reader: Final = lru_cache(maxsize=64)(KeyReader)
"""Cached: there are many streams, and creating a reader is slow."""


def _decoder(path: Sequence[str], kind: Any) -> Callable[[bytes], Any]:
    for name in reversed(path):
        # gc=False: there are millions of short-lived objects, without cycles.
        kind = msgspec.defstruct("Key", [("at", kind)], rename={"at": name}, gc=False)
    return msgspec.json.Decoder(kind).decode


def _canonical(raw: bytes) -> Hashable:
    """A canonical form: strings and integers are themselves, as in `all`."""
    first = raw[:1]
    if first == b'"':
        return str(json.loads(raw))
    if first in (b"t", b"f"):
        return (raw,)
    if first in (b"{", b"[", b"n"):
        kinds = {b"{": "an object", b"[": "an array", b"n": "null"}
        raise KeyMissing(f"its key is {kinds[first]}, not a string, a number or a boolean")
    return _canonical_number(raw)


def _canonical_number(raw: bytes) -> Hashable:
    match = _NUMBER.fullmatch(raw)
    if match is None or len(raw) > _DIGITS_MAX:
        return (raw,)
    sign, whole, fraction, power = match.groups()
    digits = (whole + (fraction or b"")).lstrip(b"0")
    exponent = int(power or 0) - len(fraction or b"")
    stripped = digits.rstrip(b"0")
    exponent += len(digits) - len(stripped)
    if not stripped:
        return 0
    if 0 <= exponent <= _DIGITS_MAX - len(stripped):
        shifted: int = int(sign + stripped) * 10**exponent
        return shifted
    return (sign, stripped, exponent)
