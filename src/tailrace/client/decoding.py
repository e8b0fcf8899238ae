"""
What chunks hold: the messages of a JSON stream, or text.

A server says where a chunk ends, and not where each message in it does. To resume after a message
in the middle of a chunk is to read the chunk's beginning again and to leave out so many of its
messages. Such a place is written `{offset},{count}`, since no offset has a comma (§6): streams only
grow, so what follows an offset is always the same.
"""

import codecs
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tailrace.client.errors import AnswerInvalid
from tailrace.client.values import Chunk, Item, TextChunk

__all__ = ["json_items", "split_place", "text_chunks"]


def split_place(place: str) -> tuple[str, int]:
    """The offset to read from, and how many messages after it to leave out."""
    offset, mark, count = place.partition(",")
    if mark and not (count.isascii() and count.isdecimal()):
        raise ValueError(f"{place!r} is not a place in a stream")
    return offset, int(count) if mark else 0


def json_items(
    url: str,
    offset: str,
    skipped: int,
    elements: Callable[[bytes], list[Any] | None] | None = None,
) -> Callable[[Chunk], Iterator[Item]]:
    """Chunks of a JSON stream to its messages, from an offset on; decoded, or cut otherwise."""
    split = elements or _array
    start, left_out = offset, skipped

    def items(chunk: Chunk) -> Iterator[Item]:
        nonlocal start, left_out
        if not chunk.data:
            return
        values = split(chunk.data)
        if values is None:
            raise AnswerInvalid(url, "what was read is no JSON array; is it a JSON stream?")
        before, start = start, chunk.next_offset
        skip, left_out = left_out, max(0, left_out - len(values))
        if skip >= len(values):
            return
        last = values.pop()
        for at, value in enumerate(values[skip:] if skip else values, skip + 1):
            yield Item(value, before, at)
        yield Item(last, start)

    return items


def _array(data: bytes) -> list[Any] | None:
    """A JSON array's elements; nothing if it is none."""
    try:
        # Almost twice as fast as the standard library, which takes what this does not: half a
        # surrogate pair, or a number out of range. Other servers may have such.
        values = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            return None
    return values if isinstance(values, list) else None


def text_chunks(offset: str) -> Callable[[Chunk], Iterator[TextChunk]]:
    """
    Chunks to text, from an offset on.

    Where a chunk ends inside a character, the offset after it is no place to resume: the last one
    that is stands in its stead. Who resumes there sees some text again, but none in pieces.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    safe = offset

    def texts(chunk: Chunk) -> Iterator[TextChunk]:
        nonlocal safe
        text = decoder.decode(chunk.data, chunk.closed)
        if not decoder.getstate()[0]:
            safe = chunk.next_offset
        if text:
            yield TextChunk(text, safe)

    return texts
