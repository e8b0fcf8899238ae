"""`tailrace fork`."""

import click

from tailrace.cli.connection import Server, bucket_option, make_location, server_options
from tailrace.cli.output import report
from tailrace.cli.parameters import HEADER_TEXT, TEXT

__all__ = ["fork"]


@click.command()
@click.argument("source", type=TEXT)
@click.argument("target", type=TEXT)
@bucket_option
@server_options
@click.option(
    "--offset",
    type=HEADER_TEXT,
    metavar="OFFSET",
    help="Inherit what is before this offset.  [default: everything]",
)
@click.option(
    "--sub-offset",
    type=click.IntRange(min=0),
    metavar="COUNT",
    help="Inherit so much more past --offset: messages of a JSON stream, else bytes.",
)
@click.option(
    "--ttl", type=click.IntRange(min=0), metavar="SECONDS", help="Expire after this time."
)
@click.option(
    "--expires-at",
    type=HEADER_TEXT,
    metavar="TIME",
    help="Expire at this time; RFC 3339: 2030-01-31T12:00:00Z.",
)
def fork(
    source: str,
    target: str,
    bucket: str,
    server: Server,
    offset: str | None,
    sub_offset: int | None,
    ttl: int | None,
    expires_at: str | None,
) -> None:
    """
    Create the stream TARGET with the content of SOURCE.

    Nothing is copied: both share what SOURCE has now, and then grow independently. Both are in
    the same bucket, or in none. TARGET has the content type of SOURCE, and its expiry unless an
    option gives another. Succeeds if TARGET is this fork already.
    """
    if ttl is not None and expires_at is not None:
        raise click.UsageError("choose one of --ttl and --expires-at")
    if sub_offset and offset is None:
        raise click.UsageError("--sub-offset goes together with --offset")
    location = make_location(server, source, bucket)
    if not target.strip("/"):
        raise click.UsageError("TARGET is empty")
    with location.stream() as stream:
        made = stream.fork(
            target, offset=offset, sub_offset=sub_offset, ttl_s=ttl, expires_at=expires_at
        )
    what = "created" if made.new else "exists"
    name = f"{bucket}/{target}" if bucket else target
    report(
        f"{name}: {what}, a fork of {location.name}, {made.content_type}, "
        f"the tail is {made.next_offset}"
    )
