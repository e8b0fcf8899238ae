"""
How the command fails: one line that says what, perhaps a second with a hint, and an exit code.

    0    done
    1    the server failed or refused, or the input was bad
    2    the command was called wrongly
    3    not found                           404
    4    a conflict with what is there       409, and a producer that was fenced
    5    no server could be reached
    6    not authorized                      401, 403
    7    no longer retained                  410
    130  interrupted
"""

from enum import IntEnum

from tailrace.cli.stdio import tell

__all__ = ["ExitCode", "Failure", "one_line", "show"]


class ExitCode(IntEnum):
    """What scripts can tell failures apart by."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    UNAUTHORIZED = 6
    GONE = 7
    INTERRUPTED = 130


class Failure(Exception):
    """The command cannot go on; this is what its user is told."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED, hint: str = "") -> None:
        super().__init__(message, code, hint)
        self.message = message
        self.code = code
        self.hint = hint


def one_line(text: str) -> str:
    """Text from elsewhere as a line that cannot play with the terminal."""
    shown = (char if char.isprintable() else " " if char.isspace() else "?" for char in text)
    return "".join(shown).strip()


def show(message: str, hint: str = "") -> None:
    """Tell what went wrong."""
    tell(f"tailrace: {one_line(message)}")
    if hint:
        tell(f"hint: {one_line(hint)}")
