"""
The outcome of a stream whose fold failed: superseded, gone, or failed.

    410                                 there is a later snapshot           superseded
    409 when publishing                 another snapshot at this offset     superseded
    404                                 the stream was deleted, or expired  gone
    the offset is past the tail,        the stream was deleted and created
    or inside a message                 again                               gone
    any other error                                                         failed
"""

from typing import Final

from tailrace.client import AnswerInvalid, Refused, Unreachable
from tailrace.exceptions import TailraceError
from tailrace.spark.folds import MessageRefused, StateRefused
from tailrace.spark.jobs.fold.results import FAILED, GONE, SUPERSEDED

__all__ = ["SnapshotForeign", "SnapshotReplaced", "StreamIncomplete", "outcome_of"]

_OF_ANOTHER_STREAM: Final = ("offset-beyond-tail", "offset-misaligned", "snapshot-beyond-tail")
_TEXT_CHARS_MAX: Final = 1000


class SnapshotForeign(TailraceError):
    """The stream's snapshot was not made by this fold."""

    message = (
        "its snapshot is {snapshot_type!r}, not {wanted_type!r}: use the same fold as before, "
        "or, if the snapshot is a state of this fold, adopt it"
    )
    snapshot_type: str
    wanted_type: str


class SnapshotReplaced(TailraceError):
    """The stream has another snapshot than the plan saw."""

    message = "its snapshot was at {planned} and is at {found} now"
    planned: str
    found: str


class StreamIncomplete(TailraceError):
    """The number of messages received is not the number between the two offsets."""

    message = "{received} messages came instead of {expected}; nothing was published"
    expected: int
    received: int


_CODES: Final[dict[type[Exception], str]] = {
    Unreachable: "unreachable",
    AnswerInvalid: "answer-invalid",
    MessageRefused: "message-refused",
    StateRefused: "state-refused",
    SnapshotForeign: "snapshot-foreign",
    StreamIncomplete: "stream-incomplete",
}


def outcome_of(error: Exception) -> tuple[str, str, str]:
    """The outcome, a code and a text."""
    text = (error.reason if isinstance(error, MessageRefused) else str(error))[:_TEXT_CHARS_MAX]
    if isinstance(error, Refused):
        return (*_by_status(error.status, error.code), text)
    if isinstance(error, SnapshotReplaced):
        return SUPERSEDED, "snapshot-replaced", text
    return FAILED, _CODES.get(type(error), "failed"), text


def _by_status(status: int, code: str | None) -> tuple[str, str]:
    named = code or f"status-{status}"
    if status == 404 or code in _OF_ANOTHER_STREAM:
        return GONE, named
    if status in (409, 410):
        return SUPERSEDED, named
    return FAILED, named
