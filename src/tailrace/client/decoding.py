"""
What chunks hold: the messages of a JSON stream, or text.

A server says where a chunk ends, and not where each message in it does. To resume after a message
in the middle of a chunk is to read the chunk's beginning again and to leave out so many of its
messages. Such a place is written `{offset}~{count}`: streams only grow, so what follows an offset
is always the same.
"""

import codecs
import json
from collections.abc import Callable, Iterator

from tailrace.client.errors import AnswerInvalid
from tailrace.client.values import Chunk, Item, TextChunk

__all__ = ["json_items", "split_place", "text_chunks"]


def split_place(place: str) -> tuple[str, int]:
    """The offset to read from, and how many messages after it to leave out."""
    offset, mark, count = place.partition("~")
    if mark and not (count.isascii() and count.isdecimal()):
        raise ValueError(f"{place!r} is not a place in a stream")
    return offset, int(count) if mark else 0


def json_items(url: str, offset: str, skipped: int) -> Callable[[Chunk], Iterator[Item]]:
    """Chunks of a JSON stream to its messages, from an offset on."""
    start, left_out = offset, skipped

    def items(chunk: Chunk) -> Iterator[Item]:
        nonlocal start, left_out
        if not chunk.data:
            return
        try:
            values = json.loads(chunk.data)
        except ValueError:
            values = None
        if not isinstance(values, list):
            raise AnswerInvalid(url, "what was read is no JSON array; is it a JSON stream?")
        for at, value in enumerate(values, 1):
            place = chunk.next_offset if at == len(values) else f"{start}~{at}"
            if left_out:
                left_out -= 1
            else:
                yield Item(value, place)
        start = chunk.next_offset

    return items


def text_chunks() -> Callable[[Chunk], Iterator[TextChunk]]:
    """Chunks to text; a character that two of them share comes with the second."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def texts(chunk: Chunk) -> Iterator[TextChunk]:
        text = decode(chunk.data, chunk.closed)
        if text:
            yield TextChunk(text, chunk.next_offset)

    return texts
