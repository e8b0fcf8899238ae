"""Files of the user's: whole or not at all, and `-` for the standard streams."""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from tailrace.cli.failures import Failure
from tailrace.cli.signals import ending_on_signals

__all__ = ["STANDARD", "opened", "read_whole", "write_whole", "written"]

STANDARD = Path("-")


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """
    A file to read.

    Raises:
        Failure: It cannot be read.
    """
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
    """
    All of a file.

    Raises:
        Failure: It cannot be read.
    """
    with opened(file) as reader:
        try:
            return reader.read()
        except OSError as error:
            raise _failure(file, error) from error


@contextmanager
def written(file: Path) -> Iterator[BinaryIO]:
    """
    A file to write, which appears under its name when all of it is there.

    What is there already and is no regular file, such as a device or a FIFO, is written to.

    Raises:
        Failure: It cannot be written.
        UsageError: It is a directory.
    """
    if file.is_dir():
        raise click.UsageError(f"{str(file)!r} is a directory, and not a file to write")
    try:
        with _direct(file) if _is_special(file) else _replacing(file) as writer:
            yield writer
    except OSError as error:
        raise _failure(file, error) from error


def _is_special(file: Path) -> bool:
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return False
    # What /dev/stdout stands for may be a regular file; it is still not one to be replaced.
    return not stat.S_ISREG(mode) or file.absolute().parts[1:2] in (("dev",), ("proc",))


@contextmanager
def _direct(file: Path) -> Iterator[BinaryIO]:
    with file.open("wb") as writer:
        yield writer


@contextmanager
def _replacing(file: Path) -> Iterator[BinaryIO]:
    # What a link leads to is replaced, and not the link.
    place = Path(os.path.realpath(file))
    part = place.with_name(f"tailrace-{secrets.token_hex(4)}.part")
    with ending_on_signals():
        # It must not be there: so nobody can have put a link in its place.
        number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(number, "wb") as writer:
                if place.exists():
                    os.fchmod(number, stat.S_IMODE(place.stat().st_mode))
                yield writer
                writer.flush()
                os.fsync(number)
            part.replace(place)
            _sync_directory(place.parent)
        finally:
            part.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    """So that its name stays too; where that cannot be asked for, the file is there anyway."""
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


def write_whole(file: Path, data: bytes) -> None:
    """
    All of a file at once.

    Raises:
        Failure: It cannot be written.
    """
    with written(file) as writer:
        writer.write(data)


def _failure(file: Path, error: OSError) -> Failure:
    return Failure(f"{file}: {error.strerror or error}")
