"""
Contents of streams as they are printed: JSON messages one per line, other contents unchanged.

JSON messages are cut out of the response and never decoded and encoded again, so that every digit
is printed as it was appended.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

import click

from tailrace.cli.output import Output, as_json, json_type, text_type
from tailrace.client import Chunk, Item
from tailrace.client.decoding import json_items, split_offset
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
    "with_offsets_option",
    "write_chunk",
]

with_offsets_option = click.option(
    "--json",
    "with_offsets",
    is_flag=True,
    help="Print JSON lines with the offset after each message.",
)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Numbers are not converted: as text they cost nothing and cannot be too large.
_scan: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder(
    parse_int=str, parse_float=str, parse_constant=_refuse_constant
).raw_decode
_WHITE: Final = " \t\r\n"
_after_white: Final = re.compile(r"[ \t\n\r]*").match
_LINE_ENDS: Final = str.maketrans("\r\n", "  ")


def json_cutter(start: str, url: str) -> Callable[[Chunk], Iterator[Item]]:
    """A function from a chunk of a JSON stream, read from `start` on, to its messages."""
    offset, skipped = split_offset(start)
    return json_items(url, offset, skipped, split_array)


def json_messages(chunks: Iterable[Chunk], start: str, url: str) -> Iterator[Item]:
    """The messages in chunks of a JSON stream, read from `start` on."""
    return chain.from_iterable(map(json_cutter(start, url), chunks))


def split_array(data: bytes) -> list[bytes] | None:
    """The elements of a JSON array as they are written, each on one line; None if it is invalid."""
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


def message_line(message: Item, *, with_offset: bool) -> bytes:
    """A message as a line, alone or in an object with the offset after it."""
    if not with_offset:
        raw: bytes = message.value
        return raw
    return json_object({"next_offset": message.next_offset}, b'"value": ' + message.value)


def write_chunk(output: Output, chunk: Chunk, content_type: str, *, with_offset: bool) -> None:
    """Print bytes of a stream that is not JSON, alone or in an object with the next offset."""
    if not with_offset:
        output.write(chunk.data)
    elif chunk.data:
        data = content(chunk.data, content_type)
        output.line(json_object({"next_offset": chunk.next_offset}, data))


def json_object(fields: dict[str, Any], *members: bytes) -> bytes:
    """A JSON object of fields, and of members that are encoded already."""
    return b"{%s}" % b", ".join((as_json(fields)[1:-1], *members))


def content(data: bytes, content_type: str) -> bytes:
    """Bytes as a member of a JSON object: a value, a text, or base64."""
    try:
        if json_type(content_type):
            return b'"value": ' + json_line(data).encode()
        if text_type(content_type):
            return b'"text": ' + as_json(data.decode())
    except ValueError:
        # Not of its type, or it ends within a character. Base64 keeps every byte.
        pass
    return b'"base64": ' + as_json(base64.b64encode(data).decode())


def json_line(data: bytes) -> str:
    """
    One JSON value as it is written, on one line.

    Raises:
        ValueError: It is not one JSON value; the message says where, and why.
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
    One JSON value as it is sent, on one line.

    Raises:
        ValueError: It is invalid.
    """
    line = json_line(data).encode()
    check_message(line, as_json=True)
    return line
