"""`tailrace ls`: the streams of a bucket."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import click

from tailrace.cli.connection import Server, server_options
from tailrace.cli.output import (
    Output,
    age,
    as_json,
    fields_of,
    human_bytes,
    report,
    short_type,
    table,
)
from tailrace.cli.parameters import BUCKET, TEXT
from tailrace.client import Listed

__all__ = ["ls"]

_PAGE: Final = 500
_TITLES: Final = ("NAME", "TYPE", "SIZE", "STATE", "LAST WRITE")


@click.command()
@click.argument("bucket", type=BUCKET)
@server_options
@click.option("--prefix", default="", type=TEXT, help="List only names that begin with this.")
@click.option(
    "--after", default="", type=TEXT, metavar="NAME", help="List only names that sort after this."
)
@click.option("-l", "--long", is_flag=True, help="Print a table in a pipe as well.")
@click.option("--json", "is_json", is_flag=True, help="Print a JSON object per line.")
def ls(bucket: str, server: Server, prefix: str, after: str, long: bool, is_json: bool) -> None:
    """
    List the streams of a bucket.

    Prints a table to a terminal, and names to a pipe.
    """
    output = Output()
    with server.bucket(bucket) as found:
        listed = found.streams(prefix=prefix, after=after)
        if is_json:
            for stream in listed:
                output.line(as_json(fields_of(stream)))
        elif output.terminal or long:
            line = ""
            for line in _table(listed):
                output.line(line)
            if not line:
                report(f"{bucket}: no {'matching ' if prefix or after else ''}streams")
        else:
            for stream in listed:
                output.line(stream.stream_id)
    output.flush()


def _table(listed: Iterable[Listed]) -> Iterator[str]:
    """A table, page by page, because a bucket may have more streams than fit into memory."""
    widths = [0] * len(_TITLES)
    rows = map(_row, listed)
    page = [_TITLES, *islice(rows, _PAGE)]
    while page:
        if page != [_TITLES]:
            yield from table(page, widths)
        page = list(islice(rows, _PAGE))


def _row(stream: Listed) -> tuple[str, ...]:
    return (
        stream.stream_id,
        short_type(stream.content_type),
        human_bytes(stream.size),
        "closed" if stream.closed else "open",
        age(stream.last_write_at_ms),
    )
