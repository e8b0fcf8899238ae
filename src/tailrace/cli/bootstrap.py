"""`tailrace bootstrap`: all that a new reader needs."""

from typing import Final

import click

from tailrace.cli.connection import Target, stream_argument
from tailrace.cli.messages import content, json_line, json_object
from tailrace.cli.output import Output, json_type, text_type
from tailrace.cli.snapshot import described, need_bucket
from tailrace.client import Bootstrap

__all__ = ["bootstrap"]

_BINARY: Final = "application/octet-stream"


@click.command()
@stream_argument
@click.option("--json", "is_json", is_flag=True, help="With where to read on, as one object.")
@click.option("--force", is_flag=True, help="Print binary and controls to a terminal as they are.")
def bootstrap(target: Target, is_json: bool, force: bool) -> None:
    """
    Print the snapshot of a stream, and every message after it.

    With --json it says where to read on: tailrace tail -f --offset OFFSET.
    """
    need_bucket(target)
    with target.stream() as stream:
        # A bootstrap begins again where it broke off: far longer than somebody waits for a server
        # that is away. This tells it at once.
        stream.head()
        found = stream.bootstrap()
    if is_json:
        output = Output()
        output.line(_object(found))
    else:
        output = _plain(found, force=force)
    output.finish()


def _object(found: Bootstrap) -> bytes:
    kind = found.content_type or _BINARY
    messages = b", ".join(b"{%s}" % content(data, kind) for data in found.messages)
    snapshot = b"null" if found.snapshot is None else described(found.snapshot)
    return json_object(
        {"next_offset": found.next_offset},
        b'"snapshot": ' + snapshot,
        b'"messages": [%s]' % messages,
    )


def _plain(found: Bootstrap, *, force: bool) -> Output:
    snapshot = found.snapshot
    kind = found.content_type or "text/plain"
    types = [kind] if snapshot is None else [kind, snapshot.content_type]
    # If one of them is binary, all of it is looked at.
    output = Output(next((each for each in types if not text_type(each)), kind), force=force)
    if snapshot is not None:
        output.write(snapshot.data)
        if text_type(snapshot.content_type) and not snapshot.data.endswith(b"\n"):
            # So that the first message begins a line.
            output.write(b"\n")
    for data in found.messages:
        if json_type(kind):
            output.line(json_line(data).encode())
        else:
            output.write(data)
    return output
