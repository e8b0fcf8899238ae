"""`tailrace import`: NDJSON files into a JSON stream."""

import errno
import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from tailrace.cli.connection import Patience, Server, bucket_option, make_location, server_options
from tailrace.cli.create import JSON_TYPE
from tailrace.cli.failures import Failure, print_error
from tailrace.cli.files import STANDARD, opened
from tailrace.cli.messages import json_message
from tailrace.cli.output import counted, report
from tailrace.cli.parameters import TEXT
from tailrace.cli.progress import Progress, progress_option, show_progress
from tailrace.cli.writing import Writer, find_or_create, writing, writing_options

__all__ = ["import_"]


@click.command("import")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.argument("path", type=TEXT)
@bucket_option
@server_options
@click.option("--skip-bad", is_flag=True, help="Skip lines that are not JSON, and count them.")
@writing_options
@progress_option
def import_(
    files: tuple[Path, ...],
    path: str,
    bucket: str,
    server: Server,
    skip_bad: bool,
    creates: bool,
    closes: bool,
    producer_id: str | None,
    epoch: int | None,
    progress: bool | None,
) -> None:
    """
    Append each line of NDJSON files to a JSON stream.

    FILE may be -, for standard input. Empty lines are skipped. The import ends at a line that is
    not JSON: the lines before it are stored, and none after it.
    """
    location = make_location(server, path, bucket)
    total = _size(files)
    options = [word for file in files for word in ("--file", str(file))]
    not_json = f"append it unchanged: {location.command('append', *options)}"
    head = find_or_create(location, JSON_TYPE, creates=creates, not_json=not_json)
    with (
        writing(
            location,
            head.content_type,
            patience=Patience.STEADY,
            producer_id=producer_id,
            epoch=epoch,
        ) as writer,
        show_progress(Progress("import", total), progress) as shown,
    ):
        bad = _send(writer, files, shown, skip_bad)
        if closes:
            writer.producer.close_stream()
        else:
            writer.producer.flush()
    if bad:
        print_error(f"skipped {counted(bad, 'line')} that {'is' if bad == 1 else 'are'} not JSON")
    report(f"{location.name}: {counted(writer.count)} imported")


def _size(files: Iterable[Path]) -> int | None:
    """
    The size of all files; None if one is not a regular file.

    Raises:
        Failure: One does not exist, or is a directory.
    """
    total = 0
    regular = True
    for file in files:
        if file == STANDARD:
            regular = False
            continue
        try:
            found = file.stat()
        except OSError as error:
            raise Failure(f"{file}: {error.strerror}") from error
        if stat.S_ISDIR(found.st_mode):
            raise Failure(f"{file}: {os.strerror(errno.EISDIR)}")
        regular = regular and stat.S_ISREG(found.st_mode)
        total += found.st_size
    return total if regular else None


def _send(writer: Writer, files: Iterable[Path], shown: Progress, skip_bad: bool) -> int:
    """Send every line; returns the number of lines that were skipped."""
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
                    hint = "correct the line, or skip such lines: --skip-bad"
                    raise writer.rejected(f"{file}:{number} is not JSON: {error}", hint) from error
                bad += 1
            else:
                writer.send(data)
                messages = 1
        shown.advance(size, messages)
    return bad


def _lines(files: Iterable[Path]) -> Iterator[tuple[Path, int, bytes]]:
    for file in files:
        with opened(file) as source:
            for number, line in enumerate(source, 1):
                yield file, number, line
