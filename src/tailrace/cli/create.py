"""`tailrace create`."""

from typing import Final

import click

from tailrace.cli.connection import Target, stream_argument
from tailrace.cli.output import report
from tailrace.cli.parameters import HEADER_TEXT

__all__ = ["DEFAULT_TYPE", "JSON_TYPE", "choose_type", "create"]

JSON_TYPE: Final = "application/json"
DEFAULT_TYPE: Final = "text/plain"


def choose_type(content_type: str | None, is_json: bool, is_text: bool) -> str | None:
    """
    The one type that was asked for, if any was.

    Raises:
        UsageError: Two were.
    """
    found = [
        kind
        for kind in (
            content_type,
            JSON_TYPE if is_json else None,
            DEFAULT_TYPE if is_text else None,
        )
        if kind is not None
    ]
    if len(found) > 1:
        raise click.UsageError("choose one of --type, --json and --text")
    return found[0] if found else None


@click.command()
@stream_argument
@click.option("--type", "content_type", type=HEADER_TEXT, metavar="TYPE", help="Its content type.")
@click.option("--json", "is_json", is_flag=True, help=f"The same as --type {JSON_TYPE}.")
@click.option("--text", "is_text", is_flag=True, help=f"{DEFAULT_TYPE}, which is the default.")
@click.option(
    "--ttl", type=click.IntRange(min=0), metavar="SECONDS", help="It ends so long after now."
)
@click.option(
    "--expires-at",
    type=HEADER_TEXT,
    metavar="TIME",
    help="It ends then; RFC 3339: 2030-01-31T12:00:00Z.",
)
@click.option("--closed", is_flag=True, help="It never takes anything.")
def create(
    target: Target,
    content_type: str | None,
    is_json: bool,
    is_text: bool,
    ttl: int | None,
    expires_at: str | None,
    closed: bool,
) -> None:
    """
    Create a stream.

    No error if it is there already, just so.
    """
    wanted = choose_type(content_type, is_json, is_text) or DEFAULT_TYPE
    if ttl is not None and expires_at is not None:
        raise click.UsageError("choose one of --ttl and --expires-at")
    with target.stream() as stream:
        made = stream.create(wanted, ttl_s=ttl, expires_at=expires_at, closed=closed)
    what = "created" if made.new else "was there"
    report(f"{target.name}: {what}, {made.content_type}, its tail is {made.next_offset}")
