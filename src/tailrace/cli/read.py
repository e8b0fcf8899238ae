"""`tailrace read`: what is there, up to the tail of now."""

import sys
from itertools import islice

import click

from tailrace.cli.connection import Target, stream_argument
from tailrace.cli.messages import json_messages, message_line, write_chunk
from tailrace.cli.offsets import offset_option, resolve
from tailrace.cli.output import Output, json_type
from tailrace.client.decoding import split_place

__all__ = ["read"]


@click.command()
@stream_argument
@offset_option
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Print at most this many messages (of a JSON stream).",
)
@click.option("--json", "wrapped", is_flag=True, help="Each on a line, with where to read on.")
@click.option("--force", is_flag=True, help="Print binary and controls to a terminal as they are.")
def read(target: Target, offset: str | None, limit: int | None, wrapped: bool, force: bool) -> None:
    """
    Print what a stream has, up to its tail of now.

    Messages of a JSON stream come one a line, anything else byte for byte.
    """
    with target.stream() as stream:
        head = stream.head()
        start = resolve(offset, head)
        output = Output(head.content_type, force=force)
        if json_type(head.content_type):
            chunks = stream.read(split_place(start)[0])
            most = None if limit is None else min(limit, sys.maxsize)
            for message in islice(json_messages(chunks, start, stream.url), most):
                output.line(message_line(message, wrapped=wrapped))
        elif limit is not None:
            raise click.UsageError(
                f"--limit counts messages of JSON, and {target.name} is {head.content_type}"
            )
        else:
            for chunk in stream.read(start):
                write_chunk(output, chunk, head.content_type, wrapped=wrapped)
        output.finish()
