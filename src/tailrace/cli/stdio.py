"""
The standard streams, which may be closed, full or broken.

Rule 1: only what concerns standard output ends a command. What cannot be told on standard error is
not told, and the work goes on.

Rule 2: a broken pipe is "the reader has enough" only where we wrote to standard output.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

__all__ = ["OutputEnded", "columns", "forget", "mend", "tell"]

_COLUMNS = 80


class OutputEnded(Exception):
    """Who reads our output has all that was wanted: `tailrace read x | head -n 1`."""


def mend() -> None:
    """Put /dev/null where a stream is closed: the next file to be opened would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which is this one.
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or _nothing("r")
    sys.stdout = sys.stdout or _nothing("w")
    sys.stderr = sys.stderr or _nothing("w")


def _nothing(mode: str) -> TextIO:
    return cast("TextIO", Path(os.devnull).open(mode))


def forget(file: TextIO) -> None:
    """What is left in its buffer has nowhere to go, also when the interpreter ends."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, file.fileno())
        finally:
            os.close(nowhere)


def tell(text: str, end: str = "\n") -> None:
    """Write to standard error, if that can be."""
    try:
        sys.stderr.write(text + end)
        sys.stderr.flush()
    except UnicodeEncodeError:
        tell(text.encode("ascii", "backslashreplace").decode(), end)
    except OSError:
        forget(sys.stderr)


def columns(file: TextIO) -> int:
    """How wide a terminal is."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdecimal() and int(asked):
        return int(asked)
    try:
        return os.get_terminal_size(file.fileno()).columns or _COLUMNS
    except OSError:
        return _COLUMNS
