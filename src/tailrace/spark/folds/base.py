"""
What a fold is: messages go in, in order and in pieces, and a state comes out, as a snapshot.

Rule 1: the same history gives the same bytes, whatever the sizes of the pieces that it came in and
wherever earlier snapshots were taken:

    finish(take(start(None), a + b)) == finish(take(start(finish(take(start(None), a))), b))

Two jobs that fold the same stream then publish the same snapshot, and the server takes the second
for a repetition of the first.

Rule 2: what a fold does not look into it does not touch. JSON values keep their bytes: numbers
that no float holds, `1e2`, the order of members, white space.

Rule 3: a message that a fold cannot take is refused, by its place. It is never skipped: a snapshot
replaces the messages before it, and what it leaves out is gone.
"""

from collections.abc import Sequence
from typing import Protocol

from tailrace.exceptions import ExitCode, TailraceError

__all__ = ["Fold", "FoldInvalid", "MessageRefused", "StateRefused"]


class Fold(Protocol):
    """The state of one stream, being made."""

    def start(self, snapshot: bytes | None) -> None:
        """
        Begin with what an earlier snapshot holds; None: with nothing.

        Raises:
            StateRefused: It is not a state of this fold.
        """

    def take(self, values: Sequence[bytes]) -> None:
        """
        The next messages.

        Raises:
            MessageRefused: One cannot be taken; this fold is of no use any more.
        """

    def finish(self) -> bytes:
        """
        The state after all that was taken.

        Raises:
            StateRefused: It cannot be written down.
        """


class FoldInvalid(TailraceError, ValueError):
    """There is no such fold, or a parameter is missing or not allowed."""

    message = "fold {fold!r}: {reason}"
    exit_code = ExitCode.USAGE
    fold: str
    reason: str


class MessageRefused(TailraceError):
    """The fold cannot take a message."""

    message = "message {index} of the piece: {reason}"
    index: int
    """The position of the message in the sequence passed to `take`, from 0."""
    reason: str


class StateRefused(TailraceError):
    """A snapshot is not a state of this fold, or a state cannot become a snapshot."""

    message = "{reason}"
    reason: str
