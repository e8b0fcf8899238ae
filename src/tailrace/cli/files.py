"""Files to read and write. `-` is a standard stream. A file is replaced when it is complete."""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

import click

from tailrace.cli.failures import Failure
from tailrace.cli.output import Output
from tailrace.cli.signals import exit_on_signals

__all__ = [
    "STANDARD",
    "Write",
    "destination",
    "file_argument",
    "opened",
    "read_whole",
    "written",
]

STANDARD = Path("-")

Write: TypeAlias = Callable[[bytes], object]

file_argument = click.argument("file", type=click.Path(path_type=Path, allow_dash=True))


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input, for reading; an error is a `Failure`."""
    if file == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        reader = file.open("rb")
    except OSError as error:
        raise _failure(file, error) from error
    with reader:
        yield reader


def read_whole(file: Path) -> bytes:
    """Read a file, or standard input; an error is a `Failure`."""
    with opened(file) as reader:
        try:
            return reader.read()
        except OSError as error:
            raise _failure(file, error) from error


@contextmanager
def destination(file: Path, output: Callable[[], Output]) -> Iterator[Write]:
    """A function that writes to a file, or to standard output."""
    if file == STANDARD:
        standard = output()
        yield standard.write
        standard.finish()
    else:
        with written(file) as writer:
            yield writer.write


@contextmanager
def written(file: Path) -> Iterator[BinaryIO]:
    """
    Write a file, which appears under its name when it is complete.

    A device, a FIFO and other special files are written directly.

    Raises:
        Failure: It cannot be written.
        UsageError: It is a directory.
    """
    if file.is_dir():
        raise click.UsageError(f"{str(file)!r} is a directory")
    try:
        with file.open("wb") if _is_special(file) else _replacing(file) as writer:
            yield writer
    except OSError as error:
        raise _failure(file, error) from error


def _is_special(file: Path) -> bool:
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return False
    # /dev/stdout may lead to a regular file, which must not be replaced either.
    return not stat.S_ISREG(mode) or file.absolute().parts[1:2] in (("dev",), ("proc",))


@contextmanager
def _replacing(file: Path) -> Iterator[BinaryIO]:
    # A symbolic link stays, and the file that it leads to is replaced.
    target = Path(os.path.realpath(file))
    part = target.with_name(f"tailrace-{secrets.token_hex(4)}.part")
    with exit_on_signals():
        # O_EXCL: the name must be new, so that no other user can have put a link there.
        number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(number, "wb") as writer:
                if target.exists():
                    os.fchmod(number, stat.S_IMODE(target.stat().st_mode))
                yield writer
                writer.flush()
                os.fsync(number)
            part.replace(target)
            _sync_directory(target.parent)
        finally:
            part.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    """Make the new name durable, where the file system supports it."""
    try:
        number = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(number)


def _failure(file: Path, error: OSError) -> Failure:
    return Failure(f"{file}: {error.strerror or error}")
