"""`tailrace snapshot`: the state that the messages of a stream add up to."""

from pathlib import Path

import click

from tailrace.cli.connection import Location, stream_argument
from tailrace.cli.files import file_argument, read_whole, written
from tailrace.cli.messages import content, json_object
from tailrace.cli.output import Output, force_option, report
from tailrace.cli.parameters import HEADER_TEXT, TEXT, is_url
from tailrace.client import Refused, Snapshot
from tailrace.client.streams import DEFAULT_CONTENT_TYPE

__all__ = ["need_bucket", "snapshot", "snapshot_object"]


@click.group()
def snapshot() -> None:
    """
    Get and publish snapshots of streams in buckets.

    A snapshot is the state that all messages before an offset add up to.
    """


@snapshot.command()
@stream_argument
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    help="Write the snapshot to this file.",
)
@click.option(
    "--json", "is_json", is_flag=True, help="Print a JSON object with the offset and type."
)
@force_option
def get(location: Location, file: Path | None, is_json: bool, force: bool) -> None:
    """Print the latest snapshot of a stream."""
    need_bucket(location)
    with location.stream() as stream:
        found = stream.snapshot()
    if file is not None:
        with written(file) as writer:
            writer.write(found.data)
        report(f"{location.name}: the snapshot at {found.offset} is in {file}")
        return
    output = Output(found.content_type, force=force)
    if is_json:
        output.line(snapshot_object(found))
    else:
        output.write(found.data)
    output.finish()


@snapshot.command()
@stream_argument
@file_argument
@click.option(
    "--offset",
    required=True,
    type=TEXT,
    help="The snapshot covers all messages before this offset, which a server returned.",
)
@click.option(
    "--type",
    "content_type",
    default=DEFAULT_CONTENT_TYPE,
    show_default=True,
    type=HEADER_TEXT,
    metavar="TYPE",
    help="Content type of the snapshot.",
)
def put(location: Location, file: Path, offset: str, content_type: str) -> None:
    """
    Publish FILE, or - for standard input, as the snapshot of a stream.

    The server then drops the messages before the offset.
    """
    need_bucket(location)
    data = read_whole(file)
    with location.stream() as stream:
        try:
            stream.publish_snapshot(data, offset, content_type)
        except Refused as error:
            if error.code != "offset-invalid":
                raise
            # The server's message suggests -1 and now, which only reads accept.
            raise click.UsageError(f"no server returned --offset {offset!r}") from None
    report(f"{location.name}: published at {offset}, {len(data)} bytes")


def need_bucket(location: Location) -> None:
    """Raise a usage error if a stream is not in a bucket."""
    if not location.bucket and not is_url(location.path):
        raise click.UsageError("only streams in a bucket have snapshots: use --bucket BUCKET")


def snapshot_object(found: Snapshot) -> bytes:
    """A snapshot as a JSON object."""
    fields = {"offset": found.offset, "content_type": found.content_type}
    return json_object(fields, content(found.data, found.content_type))
