"""
How a command fails: one line with the reason, an optional hint, and an exit code.

`tailrace.exceptions.ExitCode` lists the exit codes, and docs/cli.md explains them.
"""

from dataclasses import dataclass

from tailrace.cli.stdio import print_stderr
from tailrace.exceptions import ExitCode

__all__ = ["Failure", "one_line", "print_error"]


@dataclass(eq=False)
class Failure(Exception):
    """The command cannot continue. Its user sees the message and the hint, and scripts the code."""

    message: str
    code: ExitCode = ExitCode.FAILED
    hint: str = ""


def one_line(text: str) -> str:
    """Make text from another source safe to print: one line without control characters."""
    printed = (char if char.isprintable() else " " if char.isspace() else "?" for char in text)
    return "".join(printed).strip()


def print_error(message: str, hint: str = "") -> None:
    """Print a message, and a hint below it, to standard error."""
    print_stderr(f"tailrace: {one_line(message)}")
    if hint:
        print_stderr(f"hint: {one_line(hint)}")
