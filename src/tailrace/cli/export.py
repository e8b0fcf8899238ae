"""`tailrace export`: a stream to a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import click

from tailrace.cli.connection import Patience, Target, stream_argument
from tailrace.cli.files import STANDARD, written
from tailrace.cli.messages import json_cutter
from tailrace.cli.offsets import offset_option, resolve
from tailrace.cli.output import Output, counted, human_bytes, json_type, on_terminal, report
from tailrace.cli.progress import Progress, progress_option, shown
from tailrace.client import Head, Stream
from tailrace.client.decoding import split_place

__all__ = ["export"]

Write: TypeAlias = Callable[[bytes], object]


@click.command()
@stream_argument
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@offset_option
@progress_option
def export(target: Target, file: Path, offset: str | None, progress: bool | None) -> None:
    """
    Write what a stream has to a file.

    FILE may be -, for standard output. A JSON stream becomes NDJSON, any other its bytes.
    FILE appears when all of it is there.
    """
    if file == STANDARD and on_terminal() and progress is None:
        # The bar would be in the midst of it.
        progress = False
    with target.stream() as stream:
        head = stream.head()
    with (
        target.stream(Patience.STEADY) as stream,
        _destination(file, head) as write,
        shown("export", None, progress) as told,
    ):
        _copy(stream, head, resolve(offset, head), write, told)
    if file != STANDARD:
        what = counted(told.messages) if json_type(head.content_type) else human_bytes(told.bytes)
        report(f"{target.name}: {what} in {file}")


@contextmanager
def _destination(file: Path, head: Head) -> Iterator[Write]:
    if file == STANDARD:
        output = Output(head.content_type, forcible=False)
        yield output.write
        output.finish()
    else:
        with written(file) as writer:
            yield writer.write


def _copy(stream: Stream, head: Head, start: str, write: Write, told: Progress) -> None:
    chunks = stream.read(split_place(start)[0])
    if not json_type(head.content_type):
        for chunk in chunks:
            write(chunk.data)
            told.advance(len(chunk.data), 0)
        return
    cut = json_cutter(start, stream.url)
    for chunk in chunks:
        lines = [message.value + b"\n" for message in cut(chunk)]
        write(b"".join(lines))
        told.advance(len(chunk.data), len(lines))
