"""`tailrace import`: files of NDJSON into a JSON stream."""

import errno
import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from tailrace.cli.append import producer_options
from tailrace.cli.connection import (
    Patience,
    Server,
    bucket_option,
    make_target,
    server_options,
)
from tailrace.cli.create import JSON_TYPE
from tailrace.cli.failures import ExitCode, Failure, show
from tailrace.cli.files import STANDARD, opened
from tailrace.cli.messages import json_message
from tailrace.cli.output import counted, json_type, report
from tailrace.cli.parameters import TEXT
from tailrace.cli.progress import Progress, progress_option, shown
from tailrace.cli.writing import Writer, create_hint, find_or_create, writing

__all__ = ["import_"]


@click.command("import")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.argument("path", type=TEXT)
@bucket_option
@server_options
@click.option("--create", "creates", is_flag=True, help="Create the stream if it is not there.")
@click.option("--close", "closes", is_flag=True, help="Close the stream after the last message.")
@click.option("--skip-bad", is_flag=True, help="Leave out lines that are not JSON, and count them.")
@producer_options
@progress_option
def import_(
    files: tuple[Path, ...],
    path: str,
    bucket: str,
    server: Server,
    creates: bool,
    closes: bool,
    skip_bad: bool,
    producer_id: str | None,
    epoch: int | None,
    progress: bool | None,
) -> None:
    """
    Append each line of files of NDJSON to a JSON stream.

    FILE may be -, for standard input. Empty lines are left out. A line that is not JSON ends it:
    what came before is stored then, and nothing after.
    """
    target = make_target(server, path, bucket)
    if epoch is not None and producer_id is None:
        raise click.UsageError("--epoch is of a --producer, which is missing")
    total = _size(files)
    with target.stream(missing=create_hint(target)) as stream:
        head = find_or_create(stream, JSON_TYPE, create=creates)
    if not json_type(head.content_type):
        named = [word for file in files for word in ("--file", str(file))]
        hint = f"append it as it is: {target.spelled('append', *named)}"
        raise Failure(f"{target.name} is {head.content_type}, not JSON", ExitCode.CONFLICT, hint)
    with (
        writing(
            target,
            head.content_type,
            patience=Patience.STEADY,
            producer_id=producer_id,
            epoch=epoch,
        ) as writer,
        shown("import", total, progress) as told,
    ):
        bad = _send(writer, files, told, skip_bad)
        if closes:
            writer.close_stream()
        else:
            writer.flush()
    if bad:
        is_, was = ("is", "was") if bad == 1 else ("are", "were")
        show(f"{counted(bad, 'line')} {is_} not JSON, and {was} left out")
    report(f"{target.name}: {counted(writer.count)} imported")


def _size(files: Iterable[Path]) -> int | None:
    """
    How much there is to do, if that can be known.

    Raises:
        Failure: One of them is not there, or is a directory.
    """
    total = 0
    known = True
    for file in files:
        if file == STANDARD:
            known = False
            continue
        try:
            found = file.stat()
        except OSError as error:
            raise Failure(f"{file}: {error.strerror}") from error
        if stat.S_ISDIR(found.st_mode):
            raise Failure(f"{file}: {os.strerror(errno.EISDIR)}")
        known = known and stat.S_ISREG(found.st_mode)
        total += found.st_size
    return total if known else None


def _send(writer: Writer, files: Iterable[Path], told: Progress, skip_bad: bool) -> int:
    """Send every line; how many were left out."""
    bad = 0
    for file, number, line in _lines(files):
        messages = 0
        size = len(line)
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        if line.strip():
            try:
                data = json_message(line)
            except ValueError as error:
                if not skip_bad:
                    writer.flush()
                    raise Failure(
                        f"{file}:{number} is not JSON: {error}; "
                        f"{counted(writer.count)} before it stored",
                        hint="mend the line, or go on without such: --skip-bad",
                    ) from error
                bad += 1
            else:
                writer.send(data)
                messages = 1
        told.advance(size, messages)
    return bad


def _lines(files: Iterable[Path]) -> Iterator[tuple[Path, int, bytes]]:
    for file in files:
        with opened(file) as source:
            for number, line in enumerate(source, 1):
                yield file, number, line
