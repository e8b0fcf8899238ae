"""`tailrace create`."""

from typing import Final

import click

from tailrace.cli.connection import Location, stream_argument
from tailrace.cli.output import report
from tailrace.cli.parameters import HEADER_TEXT

__all__ = ["DEFAULT_TYPE", "JSON_TYPE", "choose_type", "create", "type_option"]

JSON_TYPE: Final = "application/json"
DEFAULT_TYPE: Final = "text/plain"

type_option = click.option(
    "--type",
    "content_type",
    type=HEADER_TEXT,
    metavar="TYPE",
    help=f"Content type of the new stream.  [default: {DEFAULT_TYPE}]",
)


def choose_type(content_type: str | None, is_json: bool, is_text: bool) -> str | None:
    """The content type that the options name, if any; a usage error if they name several."""
    named = (content_type, JSON_TYPE if is_json else None, DEFAULT_TYPE if is_text else None)
    found = [kind for kind in named if kind is not None]
    if len(found) > 1:
        raise click.UsageError("choose one of --type, --json and --text")
    return found[0] if found else None


@click.command()
@stream_argument
@type_option
@click.option("--json", "is_json", is_flag=True, help=f"The same as --type {JSON_TYPE}.")
@click.option("--text", "is_text", is_flag=True, help=f"The same as --type {DEFAULT_TYPE}.")
@click.option(
    "--ttl", type=click.IntRange(min=0), metavar="SECONDS", help="Expire after this time."
)
@click.option(
    "--expires-at",
    type=HEADER_TEXT,
    metavar="TIME",
    help="Expire at this time; RFC 3339: 2030-01-31T12:00:00Z.",
)
@click.option("--closed", is_flag=True, help="Create it closed: it accepts no messages.")
def create(
    location: Location,
    content_type: str | None,
    is_json: bool,
    is_text: bool,
    ttl: int | None,
    expires_at: str | None,
    closed: bool,
) -> None:
    """
    Create a stream.

    Succeeds if the stream exists with the same properties.
    """
    wanted = choose_type(content_type, is_json, is_text) or DEFAULT_TYPE
    if ttl is not None and expires_at is not None:
        raise click.UsageError("choose one of --ttl and --expires-at")
    with location.stream() as stream:
        made = stream.create(wanted, ttl_s=ttl, expires_at=expires_at, closed=closed)
    what = "created" if made.new else "exists"
    report(f"{location.name}: {what}, {made.content_type}, the tail is {made.next_offset}")
