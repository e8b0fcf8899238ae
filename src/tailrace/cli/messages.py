"""
What streams hold, as it is printed: messages of JSON one a line, anything else as its bytes.

The messages of a JSON stream are cut out of what was read, and not decoded and encoded again: what
comes out is what was put in, every digit of it.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

from tailrace.cli.output import Output, as_json, json_type, text_type
from tailrace.client import Chunk, Item
from tailrace.client.decoding import json_items, split_place
from tailrace.client.encoding import check_message

__all__ = [
    "content",
    "json_cutter",
    "json_line",
    "json_message",
    "json_messages",
    "json_object",
    "message_line",
    "split_array",
    "write_chunk",
]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Numbers are not wanted: as text they cannot be too large, nor cost anything.
_scan: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder(
    parse_int=str, parse_float=str, parse_constant=_refuse_constant
).raw_decode
_WHITE: Final = " \t\r\n"
_after_white: Final = re.compile(r"[ \t\n\r]*").match
_LINE_ENDS: Final = str.maketrans("\r\n", "  ")


def json_cutter(place: str, url: str) -> Callable[[Chunk], Iterator[Item]]:
    """From a chunk of a JSON stream to its messages; the first is one that was read at a place."""
    start, skipped = split_place(place)
    return json_items(url, start, skipped, split_array)


def json_messages(chunks: Iterable[Chunk], place: str, url: str) -> Iterator[Item]:
    """Chunks of a JSON stream, read from a place on, to its messages."""
    return chain.from_iterable(map(json_cutter(place, url), chunks))


def split_array(data: bytes) -> list[bytes] | None:
    """The elements of an array, as written in it, but without ends of lines; nothing if none."""
    try:
        return [value.translate(_LINE_ENDS).encode() for value in _elements(data.decode())]
    except (ValueError, RecursionError):
        return None


def _elements(text: str) -> Iterator[str]:
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise ValueError
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return
    while True:
        _, end = _scan(text, at)
        yield text[at:end]
        at = _skip(text, end)
        mark = text[at : at + 1]
        if mark == "]":
            return
        if mark != ",":
            raise ValueError
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _after_white(text, at)
    assert match is not None
    return match.end()


def message_line(message: Item, *, wrapped: bool) -> bytes:
    """A message as a line: itself, or with where to read on."""
    if not wrapped:
        raw: bytes = message.value
        return raw
    return json_object({"next_offset": message.next_offset}, b'"value": ' + message.value)


def write_chunk(output: Output, chunk: Chunk, content_type: str, *, wrapped: bool) -> None:
    """Bytes of a stream that is not JSON: as they are, or with where to read on."""
    if not wrapped:
        output.write(chunk.data)
    elif chunk.data:
        known = content(chunk.data, content_type)
        output.line(json_object({"next_offset": chunk.next_offset}, known))


def json_object(fields: dict[str, Any], *members: bytes) -> bytes:
    """An object of values, and of members that are JSON already."""
    return b"{%s}" % b", ".join((as_json(fields)[1:-1], *members))


def content(data: bytes, content_type: str) -> bytes:
    """Bytes as a member of an object: JSON and text as they are, or else in base64."""
    try:
        if json_type(content_type):
            return b'"value": ' + json_line(data).encode()
        if text_type(content_type):
            return b'"text": ' + as_json(data.decode())
    except ValueError:
        # Not what it says; or half of a character, of which nothing must get lost.
        pass
    return b'"base64": ' + as_json(base64.b64encode(data).decode())


def json_line(data: bytes) -> str:
    """
    One value of JSON, as it is written, on one line.

    Raises:
        ValueError: It is none; the message says where, and why.
    """
    text = data.decode().strip(_WHITE)
    try:
        _, end = _scan(text, 0)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(text):
        raise ValueError(f"more than one value: the second begins at character {end + 1}")
    return text.translate(_LINE_ENDS)


def json_message(data: bytes) -> bytes:
    """
    One value of JSON as it is sent, on one line.

    Raises:
        ValueError: It is none, or none that a server takes: half of a surrogate pair.
    """
    line = json_line(data).encode()
    check_message(line, as_json=True)
    return line
