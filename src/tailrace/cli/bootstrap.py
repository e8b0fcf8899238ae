"""`tailrace bootstrap`: the snapshot of a stream and the messages after it."""

from typing import Final

import click

from tailrace.cli.connection import Location, stream_argument
from tailrace.cli.messages import content, json_line, json_object
from tailrace.cli.output import Output, force_option, json_type, text_type
from tailrace.cli.snapshot import need_bucket, snapshot_object
from tailrace.client import Bootstrap

__all__ = ["bootstrap"]

_BINARY: Final = "application/octet-stream"


@click.command()
@stream_argument
@click.option(
    "--json", "is_json", is_flag=True, help="Print one JSON object, with the next offset."
)
@force_option
def bootstrap(location: Location, is_json: bool, force: bool) -> None:
    """
    Print the snapshot of a stream, and every message after it.

    With --json the output has the offset to continue at: tailrace tail -f --offset OFFSET.
    """
    need_bucket(location)
    with location.stream() as stream:
        # A bootstrap retries for longer than a person waits. HEAD fails within seconds.
        stream.head()
        found = stream.bootstrap()
    if is_json:
        output = Output()
        output.line(_object(found))
    else:
        output = _print(found, force=force)
    output.finish()


def _object(found: Bootstrap) -> bytes:
    kind = found.content_type or _BINARY
    messages = b", ".join(b"{%s}" % content(data, kind) for data in found.messages)
    snapshot = b"null" if found.snapshot is None else snapshot_object(found.snapshot)
    return json_object(
        {"next_offset": found.next_offset},
        b'"snapshot": ' + snapshot,
        b'"messages": [%s]' % messages,
    )


def _print(found: Bootstrap, *, force: bool) -> Output:
    snapshot = found.snapshot
    kind = found.content_type or "text/plain"
    types = [kind] if snapshot is None else [kind, snapshot.content_type]
    # If one of the types is binary, everything is checked as binary.
    output = Output(next((each for each in types if not text_type(each)), kind), force=force)
    if snapshot is not None:
        output.write(snapshot.data)
        if text_type(snapshot.content_type) and not snapshot.data.endswith(b"\n"):
            # The first message begins a line.
            output.write(b"\n")
    for data in found.messages:
        if json_type(kind):
            output.line(json_line(data))
        else:
            output.write(data)
    return output
