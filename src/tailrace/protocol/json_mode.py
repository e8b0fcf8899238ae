"""
JSON mode (§7.1): a body becomes messages, and the bytes of each are kept exactly as they were sent.

`msgspec.Raw` checks the grammar and splits the array without decoding its elements, within the
interpreter's limit of recursion. It does not check the encoding of strings; `bytes.decode` does.
Each message is stored with a comma after it, so that a read is one join without the last comma.

`msgspec` rejects half of an escaped surrogate pair, such as `"\\ud83d"`, which RFC 8259 allows. A
body that is rejected and has such escapes is checked again, with other escapes of the same length
in their place.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.protocol.errors import JsonInvalid
from tailrace.protocol.limits import JSON_MESSAGES_MAX

__all__ = ["array_parts", "check_value", "split_array", "split_messages"]

_WHITE_SPACE: Final = b" \t\n\r"
_decode_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_value: Final = msgspec.json.Decoder(msgspec.Raw).decode
_REASON_CHARS_MAX: Final = 200

# Every escape is matched, so that the second backslash of `\\\\ud83d` does not begin one.
_ESCAPE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_STAND_IN: Final = rb"\u0000"
_BETWEEN: Final = re.compile(rb"[ \t\n\r,]*")

_STRING: Final = re.compile(rb'"[^"]*+"')
_INNERMOST: Final = re.compile(rb"\[,*+\]")
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'"[]{},')
_COUNTED_BYTES_MAX: Final = 128 << 20
"""How much is searched to count messages: it takes less than a second."""


def split_messages(body: bytes) -> list[bytes | msgspec.Raw]:
    """
    The messages of one request: an array is flattened by one level, anything else is one message.

    Raises:
        JsonInvalid: The body is not JSON in UTF-8, is nested too deeply, or has too many messages.
    """
    text = body.strip(_WHITE_SPACE)
    try:
        body.decode()
        if text[:1] != b"[":
            check_value(text)
            return [text]
        if text.count(b",") >= JSON_MESSAGES_MAX:
            # Before the array is split: its elements would fill the memory.
            check_value(text)
            _check_count(text)
        return split_array(text)
    except RecursionError:
        raise JsonInvalid("the body is nested too deeply") from None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        # The parser's message says where; it may quote the input, so it is kept short.
        raise JsonInvalid(f"the body is not valid JSON: {str(error)[:_REASON_CHARS_MAX]}") from None


def check_value(text: bytes) -> None:
    """
    Check that a text is one JSON value, but not its encoding.

    Raises:
        ValueError: It is not.
        RecursionError: It is nested too deeply.
    """
    try:
        _decode_value(text)
    except msgspec.DecodeError:
        if not _SURROGATE.search(text):
            raise
        _decode_value(_without_halves(text))


def split_array(text: bytes) -> list[bytes | msgspec.Raw]:
    """The elements of a JSON array; raises as `check_value`."""
    try:
        return list(_decode_array(text))
    except msgspec.DecodeError:
        if not _SURROGATE.search(text):
            raise
    messages: list[bytes | msgspec.Raw] = []
    at = text.index(b"[") + 1
    for message in _decode_array(_without_halves(text)):
        # Only white space and one comma are between two elements.
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        end = at + len(memoryview(message))
        messages.append(text[at:end])
        at = end
    return messages


def _without_halves(text: bytes) -> bytes:
    """The text, with other characters instead of halves of surrogate pairs."""
    return _ESCAPE.sub(lambda found: _STAND_IN if found[1] else found[0], text)


def _check_count(text: bytes) -> None:
    """
    Check the number of elements of a valid array, without splitting it.

    Everything but quotes, commas and brackets is removed, then strings, then the innermost
    brackets, until few enough commas are left.
    """
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    left = text.translate(_BRACKETS, _NOT_STRUCTURE)
    # Nearly all strings are empty now. A pair between two strings, if they are a key and its value,
    # joins them, which is as good.
    left = _STRING.sub(b"", left.replace(b'""', b""))[1:-1]
    searched = 0
    while left.count(b",") >= JSON_MESSAGES_MAX:
        searched += len(left)
        if b"[" not in left or searched > _COUNTED_BYTES_MAX:
            raise JsonInvalid(
                f"the array may have {JSON_MESSAGES_MAX} messages at most: send it in several "
                "appends"
            )
        left = _INNERMOST.sub(b"", left)


def array_parts(stored: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Stored messages, each with its comma, as the pieces of one JSON array."""
    if not stored:
        return [b"[]"]
    return [b"[", *stored[:-1], stored[-1][:-1], b"]"]
