"""
A fold: takes messages in order, in pieces, and returns a state as the content of a snapshot.

It starts from an earlier snapshot, or from nothing: `fold(snapshot: bytes | None)`. The snapshot
must be a state of this fold, or `StateRefused` is raised.

Rule 1: the same history gives the same bytes, independent of the sizes of the pieces and of earlier
snapshots:

    fold(None).take(a + b).finish() == fold(fold(None).take(a).finish()).take(b).finish()

Two jobs that fold the same stream then publish the same snapshot, and the server treats the second
as a repetition of the first.

Rule 2: a fold does not change values that it need not parse. JSON values keep their bytes: numbers
that no float holds, `1e2`, the order of members, white space.

Rule 3: a message that a fold cannot take is refused, with its position. It is never skipped: a
snapshot replaces the messages before it, so a skipped message would be lost.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tailrace.exceptions import ExitCode, TailraceError
from tailrace.protocol.json_mode import split_array

__all__ = ["Fold", "FoldInvalid", "MessageRefused", "StateRefused", "array_of", "take_array"]


class Fold(Protocol):
    """The state of one stream."""

    def take(self, values: Sequence[bytes]) -> None:
        """
        Apply the next messages.

        Raises:
            MessageRefused: A message is invalid; the fold must not be used any more.
        """

    def finish(self) -> bytes:
        """
        The current state.

        Raises:
            StateRefused: The state cannot be encoded.
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


def take_array(fold: Fold, snapshot: bytes | None) -> None:
    """
    Apply the messages of a snapshot to a new fold.

    Raises:
        StateRefused: It is not a JSON array of messages that the fold can take.
    """
    array = b"[]" if snapshot is None else snapshot
    try:
        # Copies: a `Raw` would keep the whole array in memory.
        fold.take([bytes(element) for element in split_array(array)])
    except MessageRefused as refused:
        raise StateRefused(f"element {refused.index}: {refused.reason}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateRefused(f"the snapshot is not a JSON array: {error}") from None


def array_of(values: Sequence[bytes]) -> bytes:
    """An array of encoded values."""
    return b"[" + b",".join(values) + b"]"
