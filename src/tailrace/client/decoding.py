"""
Decoding of response headers, and of chunks to the messages of a JSON stream or to text.

A server gives the offset after a chunk, and not after each message in it. To resume after a message
inside a chunk, a reader reads from the chunk's start again and skips a number of messages. The
offset of a message is therefore written `{offset},{count}`, since no offset of a server has a comma
(§6). Streams only grow, so that the same messages always follow an offset.
"""

import codecs
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tailrace.client.errors import AnswerInvalid
from tailrace.client.flow import HttpResponse
from tailrace.client.values import Appended, Chunk, Item, TextChunk

__all__ = [
    "appended",
    "chunk_of",
    "is_true",
    "json_items",
    "next_offset",
    "split_offset",
    "text_chunks",
]


def appended(response: HttpResponse, *, claimed: bool) -> Appended:
    """The result of an append."""
    # §5.2.1: new data of a producer is 200, a retry is 204 and may lack the offset.
    duplicate = claimed and response.status == 204
    offset = response.headers.get("stream-next-offset") if duplicate else next_offset(response)
    return Appended(offset, is_true(response, "stream-closed"), duplicate)


def next_offset(response: HttpResponse) -> str:
    try:
        return response.headers["stream-next-offset"]
    except KeyError:
        raise AnswerInvalid(response.url, "the response has no Stream-Next-Offset") from None


def is_true(response: HttpResponse, header: str) -> bool:
    return response.headers.get(header, "").lower() == "true"


def chunk_of(response: HttpResponse, data: bytes) -> Chunk:
    closed = is_true(response, "stream-closed")
    up_to_date = closed or is_true(response, "stream-up-to-date")
    return Chunk(data, next_offset(response), up_to_date, closed)


def split_offset(text: str) -> tuple[str, int]:
    """The offset to read from, and the number of messages to skip after it."""
    offset, mark, count = text.partition(",")
    if mark and not (count.isascii() and count.isdecimal()):
        raise ValueError(f"{text!r} is not an offset")
    return offset, int(count) if mark else 0


def json_items(
    url: str,
    offset: str,
    skipped: int,
    elements: Callable[[bytes], list[Any] | None] | None = None,
) -> Callable[[Chunk], Iterator[Item]]:
    """Converts chunks to messages, from an offset on; `elements` may split without decoding."""
    split = elements or _array
    start, to_skip = offset, skipped

    def items(chunk: Chunk) -> Iterator[Item]:
        nonlocal start, to_skip
        if not chunk.data:
            return
        values = split(chunk.data)
        if values is None:
            raise AnswerInvalid(url, "the chunk is no JSON array; is this a JSON stream?")
        before, start = start, chunk.next_offset
        skip, to_skip = to_skip, max(0, to_skip - len(values))
        if skip >= len(values):
            return
        last = values.pop()
        for at, value in enumerate(values[skip:] if skip else values, skip + 1):
            yield Item(value, before, at)
        yield Item(last, start)

    return items


def _array(data: bytes) -> list[Any] | None:
    """The elements of a JSON array; None if it is no array."""
    try:
        # Almost twice as fast as the standard library. That accepts more, which other servers may
        # store: half of a surrogate pair, or a number out of range.
        values = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            return None
    return values if isinstance(values, list) else None


def text_chunks(offset: str) -> Callable[[Chunk], Iterator[TextChunk]]:
    """
    Converts chunks to text, from an offset on.

    If a chunk ends inside a character, its text has the last offset at a character boundary. A
    reader that resumes there receives some text again, but no partial character.
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
