"""`tailrace read`: a stream up to its current tail."""

import sys
from itertools import islice

import click

from tailrace.cli.connection import Location, stream_argument
from tailrace.cli.messages import json_messages, message_line, with_offsets_option, write_chunk
from tailrace.cli.offsets import offset_option, resolve
from tailrace.cli.output import Output, force_option, json_type
from tailrace.cli.parameters import count_option
from tailrace.client.decoding import split_offset

__all__ = ["read"]


@click.command()
@stream_argument
@offset_option
@count_option("--limit", least=0, help="Print at most this many messages of a JSON stream.")
@with_offsets_option
@force_option
def read(
    location: Location, offset: str | None, limit: int | None, with_offsets: bool, force: bool
) -> None:
    """
    Print a stream up to its current tail.

    A JSON stream is printed with one message per line, others byte for byte.
    """
    with location.stream() as stream:
        head = stream.head()
        start = resolve(offset, head)
        output = Output(head.content_type, force=force)
        if json_type(head.content_type):
            chunks = stream.read(split_offset(start)[0])
            most = None if limit is None else min(limit, sys.maxsize)
            for message in islice(json_messages(chunks, start, stream.url), most):
                output.line(message_line(message, with_offset=with_offsets))
        elif limit is not None:
            raise click.UsageError(
                f"--limit needs a JSON stream, and {location.name} is {head.content_type}"
            )
        else:
            for chunk in stream.read(start):
                write_chunk(output, chunk, head.content_type, with_offset=with_offsets)
        output.finish()
