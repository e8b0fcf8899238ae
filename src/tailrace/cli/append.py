"""`tailrace append`: arguments, files or standard input to messages of a stream."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tailrace.cli.connection import Command, Patience, Target, stream_argument
from tailrace.cli.create import DEFAULT_TYPE, choose_type
from tailrace.cli.failures import ExitCode, Failure
from tailrace.cli.files import read_whole
from tailrace.cli.messages import json_message
from tailrace.cli.output import Output, counted, json_type, report
from tailrace.cli.parameters import EPOCH, HEADER_TEXT
from tailrace.cli.stdio import tell
from tailrace.cli.writing import Writer, create_hint, find_or_create, writing

__all__ = ["append", "producer_options"]

_PIECE_BYTES: Final = 64 << 10


def producer_options(command: Command) -> Command:
    """Who writes; the command gets `producer_id` and `epoch`."""
    for option in (
        click.option(
            "--epoch",
            type=EPOCH,
            metavar="N",
            help="The epoch of --producer.  [default: the next one]",
        ),
        click.option(
            "--producer",
            "producer_id",
            metavar="ID",
            type=HEADER_TEXT,
            help="Write as this producer, and end others.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@stream_argument
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="All bytes of a file as one message; may be given several times.",
)
@click.option("--json", "is_json", is_flag=True, help="Insist that it is a JSON stream.")
@click.option("--create", "creates", is_flag=True, help="Create the stream if it is not there.")
@click.option(
    "--type",
    "content_type",
    type=HEADER_TEXT,
    metavar="TYPE",
    help="Its content type with --create.",
)
@click.option("--close", "closes", is_flag=True, help="Close the stream after the last message.")
@click.option(
    "-u", "--unbuffered", is_flag=True, help="Send what comes, without waiting for a line's end."
)
@producer_options
@click.option("--print-offset", is_flag=True, help="Print the tail after the last message.")
def append(
    target: Target,
    values: tuple[str, ...],
    files: tuple[Path, ...],
    is_json: bool,
    creates: bool,
    content_type: str | None,
    closes: bool,
    unbuffered: bool,
    producer_id: str | None,
    epoch: int | None,
    print_offset: bool,
) -> None:
    """
    Append messages to a stream, each of them once.

    A VALUE is a message, and so is a --file. Without either, each line of standard input is one,
    sent as it comes. On a JSON stream a message must be JSON; on others it is the bytes, to which
    nothing is added: lines keep their ends, and a VALUE has none.
    """
    wanted = choose_type(content_type, is_json, False)
    if epoch is not None and producer_id is None:
        raise click.UsageError("--epoch is of a --producer, which is missing")
    hint = create_hint(target) if is_json else None
    with target.stream(missing=hint) as stream:
        head = find_or_create(stream, wanted or DEFAULT_TYPE, create=creates)
    takes_json = json_type(head.content_type)
    if is_json and not takes_json:
        hint = "leave out --json to append it as text"
        raise Failure(f"{target.name} is {head.content_type}, not JSON", ExitCode.CONFLICT, hint)
    listed = bool(values or files)
    # All are looked at before the first is sent.
    given = [_checked(name, data, takes_json) for name, data in _given(values, files)]
    with writing(
        target,
        head.content_type,
        patience=Patience.BRIEF if listed else Patience.STEADY,
        producer_id=producer_id,
        epoch=epoch,
        together=takes_json or not listed,
    ) as writer:
        if listed:
            for data in given:
                writer.send(data)
        else:
            _send_input(writer, takes_json, unbuffered)
        if closes:
            writer.close_stream()
    _report(target, writer, head.next_offset, print_offset)


def _given(values: tuple[str, ...], files: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    for at, value in enumerate(values, 1):
        # As it was given to us, also if it is not UTF-8.
        yield f"value {at}", os.fsencode(value)
    for file in files:
        yield str(file), read_whole(file)


def _checked(name: str, data: bytes, takes_json: bool) -> bytes:
    """
    A message as it is sent.

    Raises:
        Failure: It cannot be one.
    """
    if not takes_json:
        if not data:
            raise Failure(f"{name} is empty: a message has a byte at least", ExitCode.USAGE)
        return data
    try:
        return json_message(data)
    except ValueError as error:
        hint = "a text is JSON in quotation marks: '\"hello\"'"
        raise Failure(f"{name} is not JSON: {error}", hint=hint) from error


def _send_input(writer: Writer, takes_json: bool, unbuffered: bool) -> None:
    """Each line as it comes; on a bad one, what came before it is stored and it is named."""
    source = sys.stdin.buffer
    if sys.stdin.isatty():
        tell("each line is a message; end with Ctrl-D")
    if unbuffered and not takes_json:
        # What is there, at least a byte: `read` would wait for all that was asked for.
        while piece := os.read(source.fileno(), _PIECE_BYTES):
            writer.send(piece)
        return
    for number, line in enumerate(source, 1):
        if takes_json and not line.strip():
            continue
        try:
            data = _checked(f"line {number}", line, takes_json)
        except Failure as failure:
            writer.flush()
            failure.message += f"; {counted(writer.count)} before it stored"
            raise
        writer.send(data)


def _report(target: Target, writer: Writer, before: str, print_offset: bool) -> None:
    tail = writer.next_offset or before
    if print_offset:
        output = Output()
        output.line(tail.encode())
        output.flush()
    else:
        report(f"{target.name}: {counted(writer.count)} appended, its tail is {tail}")
