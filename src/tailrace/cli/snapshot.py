"""`tailrace snapshot`: what the messages of a stream add up to."""

from pathlib import Path

import click

from tailrace.cli.connection import Target, stream_argument
from tailrace.cli.files import read_whole, write_whole
from tailrace.cli.messages import content, json_object
from tailrace.cli.output import Output, report
from tailrace.cli.parameters import HEADER_TEXT, TEXT, is_url
from tailrace.client import Refused, Snapshot
from tailrace.client.streams import DEFAULT_CONTENT_TYPE

__all__ = ["described", "need_bucket", "snapshot"]


@click.group()
def snapshot() -> None:
    """
    Get and publish snapshots of streams in buckets.

    A snapshot is what all messages before an offset add up to.
    """


@snapshot.command()
@stream_argument
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    help="Write it to this file.",
)
@click.option("--json", "is_json", is_flag=True, help="With its offset and its type, as an object.")
@click.option("--force", is_flag=True, help="Print binary and controls to a terminal as they are.")
def get(target: Target, file: Path | None, is_json: bool, force: bool) -> None:
    """Print the latest snapshot of a stream."""
    need_bucket(target)
    with target.stream() as stream:
        found = stream.snapshot()
    if file is not None:
        write_whole(file, found.data)
        report(f"{target.name}: the snapshot at {found.offset} is in {file}")
        return
    output = Output(found.content_type, force=force)
    if is_json:
        output.line(described(found))
    else:
        output.write(found.data)
    output.finish()


@snapshot.command()
@stream_argument
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--offset",
    required=True,
    type=TEXT,
    help="It adds up all messages before this offset, which was returned before.",
)
@click.option(
    "--type",
    "content_type",
    default=DEFAULT_CONTENT_TYPE,
    show_default=True,
    type=HEADER_TEXT,
    metavar="TYPE",
    help="Its own content type.",
)
def put(target: Target, file: Path, offset: str, content_type: str) -> None:
    """
    Publish FILE, or - for standard input, as the snapshot of a stream.

    The server then drops the messages before the offset.
    """
    need_bucket(target)
    data = read_whole(file)
    with target.stream() as stream:
        try:
            stream.publish_snapshot(data, offset, content_type)
        except Refused as error:
            if error.code != "offset-invalid":
                raise
            # The server's words name -1 and now as well, which are for reading.
            raise click.UsageError(
                f"--offset {offset!r} is none that was returned before"
            ) from None
    report(f"{target.name}: published at {offset}, {len(data)} bytes")


def need_bucket(target: Target) -> None:
    """
    Make sure that a stream is in a bucket.

    Raises:
        UsageError: It is not.
    """
    if not target.bucket and not is_url(target.path):
        raise click.UsageError("only streams in a bucket have snapshots: --bucket BUCKET")


def described(found: Snapshot) -> bytes:
    """A snapshot as an object."""
    known = {"offset": found.offset, "content_type": found.content_type}
    return json_object(known, content(found.data, found.content_type))
