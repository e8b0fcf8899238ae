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


class FoldInvalid(ValueError):
    """There is no such fold, or it lacks what it needs."""

    def __init__(self, fold: str, reason: str) -> None:
        super().__init__(fold, reason)
        self.fold = fold
        self.reason = reason

    def __str__(self) -> str:
        return f"fold {self.fold!r}: {self.reason}"


class MessageRefused(Exception):
    """The fold cannot take a message; `index` is its place in the piece, from 0."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason

    def __str__(self) -> str:
        return f"message {self.index} of the piece: {self.reason}"


class StateRefused(Exception):
    """A snapshot is not a state of this fold, or a state cannot become a snapshot."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
