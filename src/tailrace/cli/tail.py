"""`tailrace tail`: the end of a stream, and what comes after it."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import click

from tailrace.cli.connection import Patience, Target, stream_argument
from tailrace.cli.messages import json_cutter, json_messages, message_line, write_chunk
from tailrace.cli.offsets import offset_option, resolve
from tailrace.cli.output import Output, json_type
from tailrace.client import Chunk, Head, Item
from tailrace.client.decoding import split_place

__all__ = ["last_lines", "tail"]

_COUNT: Final = 10


@click.command()
@stream_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until it is closed.")
@click.option(
    "-n",
    "--lines",
    "count",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"The last N messages, or lines of a text.  [default: {_COUNT}; all with --offset]",
)
@offset_option
@click.option("--json", "wrapped", is_flag=True, help="Each on a line, with where to read on.")
@click.option("--force", is_flag=True, help="Print binary and controls to a terminal as they are.")
def tail(
    target: Target,
    follow: bool,
    count: int | None,
    offset: str | None,
    wrapped: bool,
    force: bool,
) -> None:
    """
    Print the end of a stream, and follow it.

    The last messages, or the last lines of a text. With -f it follows, across restarts
    of the server, until the stream is closed.
    """
    with target.stream() as stream:
        head = stream.head()
        # What a snapshot has replaced is not among the last: they can begin after it.
        start = resolve(offset or head.earliest_offset, head)
        if count is None and offset is None:
            count = _COUNT
        if count == 0:
            start = head.next_offset
        printer = _Printer(target, head, force=force, wrapped=wrapped)
        if count is None and follow:
            # Nothing to be left out: it can be printed as it comes.
            place = start
        else:
            place = printer.last(stream.read(split_place(start)[0]), start, count)
    if follow and not printer.closed:
        with target.stream(Patience.ENDLESS, missing="") as stream:
            printer.follow(stream.tail(split_place(place)[0]), place)
    printer.output.finish()


class _Printer:
    """Prints a stream in the way of its type."""

    def __init__(self, target: Target, head: Head, *, force: bool, wrapped: bool) -> None:
        self.output = Output(head.content_type, force=force)
        self.closed = False
        self._name = target.name
        self._type = head.content_type
        self._is_json = json_type(head.content_type)
        self._wrapped = wrapped
        self._place = ""

    def last(self, chunks: Iterator[Chunk], start: str, count: int | None) -> str:
        """Print the last of what was read; where to go on."""
        self._place = start
        watched = self._watch(chunks)
        if self._is_json:
            messages = json_messages(watched, start, self._name)
            # As many as are asked for are kept, and not more.
            self._lines(messages if count is None else deque(messages, min(count, sys.maxsize)))
        elif count is None:
            for chunk in watched:
                self._write(chunk)
        else:
            kept = b""
            for chunk in watched:
                kept = last_lines(kept + chunk.data, count)
            self._write(Chunk(kept, self._place, True, self.closed))
        self.output.flush()
        return self._place

    def follow(self, chunks: Iterator[Chunk], start: str) -> None:
        """Print what comes, at once."""
        cut = json_cutter(start, self._name)
        for chunk in chunks:
            if self._is_json:
                self._lines(cut(chunk))
            else:
                self._write(chunk)
            self.output.flush()

    def _watch(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self._place, self.closed = chunk.next_offset, chunk.closed
            yield chunk

    def _lines(self, messages: Iterable[Item]) -> None:
        for message in messages:
            self.output.line(message_line(message, wrapped=self._wrapped))

    def _write(self, chunk: Chunk) -> None:
        write_chunk(self.output, chunk, self._type, wrapped=self._wrapped)


def last_lines(data: bytes, count: int) -> bytes:
    """The last lines of a text; one without its end counts too."""
    if not count:
        return b""
    end = len(data) - data.endswith(b"\n")
    for _ in range(count):
        end = data.rfind(b"\n", 0, end)
        if end < 0:
            return data
    return data[end + 1 :]
