"""`tailrace close`."""

import click

from tailrace.cli.connection import Location, stream_argument
from tailrace.cli.output import report

__all__ = ["close"]


@click.command()
@stream_argument
def close(location: Location) -> None:
    """
    Close a stream: it accepts no more messages, and its live readers end.

    Succeeds if the stream is closed already.
    """
    with location.stream() as stream:
        closed = stream.close()
    report(f"{location.name}: closed at {closed.next_offset}")
