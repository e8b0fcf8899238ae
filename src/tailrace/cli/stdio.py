"""
The standard streams, which may be closed, full or broken.

Rule 1: only an error of standard output ends a command. If standard error cannot be written, the
message is lost and the work continues.

Rule 2: a broken pipe ends a command without an error only if the pipe is standard output.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

__all__ = ["OutputEnded", "discard", "print_stderr", "reopen_closed"]


class OutputEnded(Exception):
    """The reader of standard output has left: `tailrace read x | head -n 1`."""


def reopen_closed() -> None:
    """
    Open /dev/null in place of each standard stream that is closed.

    Otherwise the next file that is opened gets its number, and is written to by mistake.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Opens the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or _devnull("r")
    sys.stdout = sys.stdout or _devnull("w")
    sys.stderr = sys.stderr or _devnull("w")


def _devnull(mode: str) -> TextIO:
    return cast("TextIO", Path(os.devnull).open(mode))


def discard(file: TextIO) -> None:
    """Redirect a stream to /dev/null, so that its buffer can still be flushed at exit."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, file.fileno())
        finally:
            os.close(null)


def print_stderr(text: str, end: str = "\n") -> None:
    """Write to standard error; an error of doing so is ignored (rule 1)."""
    try:
        sys.stderr.write(text + end)
        sys.stderr.flush()
    except UnicodeEncodeError:
        print_stderr(text.encode("ascii", "backslashreplace").decode(), end)
    except OSError:
        discard(sys.stderr)
