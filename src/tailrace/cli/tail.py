"""`tailrace tail`: the end of a stream, and live messages after it."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import click

from tailrace.cli.connection import Location, Patience, stream_argument
from tailrace.cli.messages import (
    json_cutter,
    json_messages,
    message_line,
    with_offsets_option,
    write_chunk,
)
from tailrace.cli.offsets import offset_option, resolve
from tailrace.cli.output import Output, force_option, json_type
from tailrace.cli.parameters import count_option
from tailrace.client import Chunk, Head, Item
from tailrace.client.decoding import split_offset

__all__ = ["last_lines", "tail"]

_COUNT: Final = 10


@click.command()
@stream_argument
@click.option("-f", "--follow", is_flag=True, help="Print new messages until the stream is closed.")
@count_option(
    "-n",
    "--lines",
    "count",
    least=0,
    help=f"Print the last N messages, or lines of text.  [default: {_COUNT}; all with --offset]",
)
@offset_option
@with_offsets_option
@force_option
def tail(
    location: Location,
    follow: bool,
    count: int | None,
    offset: str | None,
    with_offsets: bool,
    force: bool,
) -> None:
    """
    Print the last messages of a stream, or the last lines of text.

    With -f it follows the stream until it is closed, across restarts of the server.
    """
    with location.stream() as stream:
        head = stream.head()
        # Messages before the earliest offset are covered by a snapshot and cannot be read.
        start = resolve(offset or head.earliest_offset, head)
        if count is None and offset is None:
            count = _COUNT
        if count == 0:
            start = head.next_offset
        printer = _Printer(location, head, force=force, with_offsets=with_offsets)
        if count is not None or not follow:
            start = printer.print_last(stream.read(split_offset(start)[0]), start, count)
    if follow and not printer.closed:
        with location.stream(Patience.ENDLESS, missing="") as stream:
            printer.follow(stream.tail(split_offset(start)[0]), start)
    printer.output.finish()


class _Printer:
    """Prints a stream according to its content type."""

    def __init__(self, location: Location, head: Head, *, force: bool, with_offsets: bool) -> None:
        self.output = Output(head.content_type, force=force)
        self.closed = False
        self._name = location.name
        self._type = head.content_type
        self._is_json = json_type(head.content_type)
        self._with_offsets = with_offsets
        self._next_offset = ""

    def print_last(self, chunks: Iterator[Chunk], start: str, count: int | None) -> str:
        """Print the last messages of what is read; returns the offset after them."""
        self._next_offset = start
        watched = self._watch(chunks)
        if self._is_json:
            messages = json_messages(watched, start, self._name)
            # Keeps only the messages that are printed.
            self._lines(messages if count is None else deque(messages, min(count, sys.maxsize)))
        elif count is None:
            for chunk in watched:
                self._write(chunk)
        else:
            kept = b""
            for chunk in watched:
                kept = last_lines(kept + chunk.data, count)
            self._write(Chunk(kept, self._next_offset, True, self.closed))
        self.output.flush()
        return self._next_offset

    def follow(self, chunks: Iterator[Chunk], start: str) -> None:
        """Print and flush each chunk as it arrives."""
        cut = json_cutter(start, self._name)
        for chunk in chunks:
            if self._is_json:
                self._lines(cut(chunk))
            else:
                self._write(chunk)
            self.output.flush()

    def _watch(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self._next_offset, self.closed = chunk.next_offset, chunk.closed
            yield chunk

    def _lines(self, messages: Iterable[Item]) -> None:
        for message in messages:
            self.output.line(message_line(message, with_offset=self._with_offsets))

    def _write(self, chunk: Chunk) -> None:
        write_chunk(self.output, chunk, self._type, with_offset=self._with_offsets)


def last_lines(data: bytes, count: int) -> bytes:
    """The last lines of text; a line without a line end counts as well."""
    if not count:
        return b""
    end = len(data) - data.endswith(b"\n")
    for _ in range(count):
        end = data.rfind(b"\n", 0, end)
        if end < 0:
            return data
    return data[end + 1 :]
