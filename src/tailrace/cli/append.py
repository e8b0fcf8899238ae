"""`tailrace append`: messages from arguments, files or standard input."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tailrace.cli.connection import Location, Patience, stream_argument
from tailrace.cli.create import DEFAULT_TYPE, choose_type, type_option
from tailrace.cli.failures import Failure
from tailrace.cli.files import read_whole
from tailrace.cli.messages import json_message
from tailrace.cli.output import counted, json_type, print_lines, report
from tailrace.cli.stdio import print_stderr
from tailrace.cli.writing import Writer, find_or_create, writing, writing_options
from tailrace.exceptions import ExitCode

__all__ = ["append"]

_READ_BYTES: Final = 64 << 10
_JSON_HINT: Final = "a JSON string needs quotation marks: '\"hello\"'"


@click.command()
@stream_argument
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="Append the contents of a file as one message. Repeatable.",
)
@click.option("--json", "is_json", is_flag=True, help="Fail if it is not a JSON stream.")
@type_option
@click.option("-u", "--unbuffered", is_flag=True, help="Send input without waiting for a line end.")
@writing_options
@click.option("--print-offset", is_flag=True, help="Print the tail after the last message.")
def append(
    location: Location,
    values: tuple[str, ...],
    files: tuple[Path, ...],
    is_json: bool,
    content_type: str | None,
    unbuffered: bool,
    creates: bool,
    closes: bool,
    producer_id: str | None,
    epoch: int | None,
    print_offset: bool,
) -> None:
    """
    Append messages to a stream, each exactly once.

    Each VALUE and each --file is a message. Without them, each line of standard input is a message
    and is sent when it is read. Messages of a JSON stream must be JSON. Those of other streams are
    stored byte for byte: a line includes its line end, a VALUE has none.
    """
    wanted = choose_type(content_type, is_json, False)
    not_json = "omit --json to append text" if is_json else None
    head = find_or_create(location, wanted or DEFAULT_TYPE, creates=creates, not_json=not_json)
    takes_json = json_type(head.content_type)
    is_listed = bool(values or files)
    # All are checked before the first is sent.
    listed = [_checked(name, data, takes_json) for name, data in _listed(values, files)]
    with writing(
        location,
        head.content_type,
        patience=Patience.BRIEF if is_listed else Patience.STEADY,
        producer_id=producer_id,
        epoch=epoch,
        batches=takes_json or not is_listed,
    ) as writer:
        if is_listed:
            for data in listed:
                writer.send(data)
        else:
            _send_input(writer, takes_json, unbuffered)
        if closes:
            writer.producer.close_stream()
    tail = writer.next_offset or head.next_offset
    if print_offset:
        print_lines(tail)
    else:
        report(f"{location.name}: {counted(writer.count)} appended, the tail is {tail}")


def _listed(values: tuple[str, ...], files: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    for number, value in enumerate(values, 1):
        # The original bytes, also if they are not UTF-8.
        yield f"value {number}", os.fsencode(value)
    for file in files:
        yield str(file), read_whole(file)


def _checked(name: str, data: bytes, takes_json: bool) -> bytes:
    """A message as it is sent; a `Failure` if it is invalid."""
    if not takes_json:
        if not data:
            raise Failure(f"{name} is empty: a message has at least one byte", ExitCode.USAGE)
        return data
    try:
        return json_message(data)
    except ValueError as error:
        raise Failure(f"{name} is not JSON: {error}", hint=_JSON_HINT) from error


def _send_input(writer: Writer, takes_json: bool, unbuffered: bool) -> None:
    """Send each line as it is read, up to the first invalid one."""
    source = sys.stdin.buffer
    if sys.stdin.isatty():
        print_stderr("each line is a message; end with Ctrl-D")
    if unbuffered and not takes_json:
        # Returns what is available; `source.read` waits until the buffer is full.
        while piece := os.read(source.fileno(), _READ_BYTES):
            writer.send(piece)
        return
    for number, line in enumerate(source, 1):
        if takes_json and not line.strip():
            continue
        try:
            data = _checked(f"line {number}", line, takes_json)
        except Failure as failure:
            raise writer.rejected(failure.message, failure.hint) from failure
        writer.send(data)
