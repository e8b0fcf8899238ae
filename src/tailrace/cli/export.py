"""`tailrace export`: a stream to a file."""

from pathlib import Path

import click

from tailrace.cli.connection import Location, Patience, stream_argument
from tailrace.cli.files import STANDARD, Write, destination, file_argument
from tailrace.cli.messages import json_cutter
from tailrace.cli.offsets import offset_option, resolve
from tailrace.cli.output import Output, counted, human_bytes, json_type, on_terminal, report
from tailrace.cli.progress import Progress, progress_option, show_progress
from tailrace.client import Head, Stream
from tailrace.client.decoding import split_offset

__all__ = ["export"]


@click.command()
@stream_argument
@file_argument
@offset_option
@progress_option
def export(location: Location, file: Path, offset: str | None, progress: bool | None) -> None:
    """
    Write the contents of a stream to a file.

    FILE may be -, for standard output. A JSON stream becomes NDJSON, others keep their bytes.
    FILE appears when it is complete.
    """
    if file == STANDARD and on_terminal() and progress is None:
        # The bar and the contents would overwrite each other.
        progress = False
    with location.stream() as stream:
        head = stream.head()
    with (
        location.stream(Patience.STEADY) as stream,
        destination(file, lambda: Output(head.content_type, forcible=False)) as write,
        show_progress(Progress("export", None), progress) as shown,
    ):
        _copy(stream, head, resolve(offset, head), write, shown)
    if file != STANDARD:
        is_json = json_type(head.content_type)
        size = counted(shown.messages) if is_json else human_bytes(shown.bytes)
        report(f"{location.name}: {size} in {file}")


def _copy(stream: Stream, head: Head, start: str, write: Write, shown: Progress) -> None:
    chunks = stream.read(split_offset(start)[0])
    if not json_type(head.content_type):
        for chunk in chunks:
            write(chunk.data)
            shown.advance(len(chunk.data))
        return
    cut = json_cutter(start, stream.url)
    for chunk in chunks:
        lines = [message.value + b"\n" for message in cut(chunk)]
        write(b"".join(lines))
        shown.advance(len(chunk.data), len(lines))
