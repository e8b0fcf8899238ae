"""`tailrace close`."""

import click

from tailrace.cli.connection import Target, stream_argument
from tailrace.cli.output import report

__all__ = ["close"]


@click.command()
@stream_argument
def close(target: Target) -> None:
    """
    Close a stream: it takes no more, and who follows it ends.

    No error if it is closed already.
    """
    with target.stream() as stream:
        closed = stream.close()
    report(f"{target.name}: closed at {closed.next_offset}")
