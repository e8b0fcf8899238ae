"""Files of the user's: whole or not at all, and `-` for the standard streams."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tailrace.cli.failures import Failure

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

    Raises:
        Failure: It cannot be written.
    """
    part = file.with_name(file.name + ".part")
    try:
        writer = part.open("wb")
    except OSError as error:
        raise _failure(part, error) from error
    try:
        with writer:
            yield writer
            writer.flush()
            os.fsync(writer.fileno())
        part.replace(file)
    except OSError as error:
        raise _failure(file, error) from error
    finally:
        part.unlink(missing_ok=True)


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
