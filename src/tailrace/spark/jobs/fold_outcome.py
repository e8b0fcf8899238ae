"""
What an error means for the stream that it happened to: superseded, gone, or failed.

    410                                 a later snapshot is there           superseded
    409 at publishing                   another one at this offset          superseded
    404                                 the stream was deleted, or expired  gone
    the offset is past the tail,        the stream was deleted, and created
    or inside a message                 again under its name                gone
    all else                                                                failed
"""

from typing import Final

from tailrace.client import AnswerInvalid, Refused, TailraceError, Unreachable
from tailrace.spark.folds import MessageRefused, StateRefused
from tailrace.spark.jobs.fold_values import FAILED, GONE, SUPERSEDED
from tailrace.spark.rows import RangeError

__all__ = ["FOLD_ERRORS", "SnapshotForeign", "SnapshotReplaced", "StreamIncomplete", "judge"]

_OF_ANOTHER_STREAM: Final = ("offset-beyond-tail", "offset-misaligned", "snapshot-beyond-tail")
_TEXT_CHARS_MAX: Final = 1000


class SnapshotForeign(Exception):
    """The stream's snapshot was made by something else."""

    def __init__(self, snapshot_type: str, wanted_type: str) -> None:
        super().__init__(snapshot_type, wanted_type)
        self.snapshot_type = snapshot_type
        self.wanted_type = wanted_type

    def __str__(self) -> str:
        return (
            f"its snapshot is {self.snapshot_type!r}, and not {self.wanted_type!r}: fold it as it "
            "was folded before, or, if the snapshot is a state of this fold, adopt it"
        )


class SnapshotReplaced(Exception):
    """Another snapshot than the plan's is there."""

    def __init__(self, planned: str, found: str) -> None:
        super().__init__(planned, found)
        self.planned = planned
        self.found = found

    def __str__(self) -> str:
        return f"its snapshot was at {self.planned} and is at {self.found} now"


class StreamIncomplete(Exception):
    """Fewer messages came, or more, than lie between two offsets."""

    def __init__(self, expected: int, received: int) -> None:
        super().__init__(expected, received)
        self.expected = expected
        self.received = received

    def __str__(self) -> str:
        return f"{self.received} messages came instead of {self.expected}; nothing was published"


FOLD_ERRORS: Final = (
    TailraceError,
    MessageRefused,
    StateRefused,
    SnapshotForeign,
    SnapshotReplaced,
    StreamIncomplete,
)
_CODES: Final[dict[type[Exception], str]] = {
    Unreachable: "unreachable",
    AnswerInvalid: "answer-invalid",
    MessageRefused: "message-refused",
    StateRefused: "state-refused",
    SnapshotForeign: "snapshot-foreign",
    StreamIncomplete: "stream-incomplete",
}


def judge(error: Exception | RangeError) -> tuple[str, str, str]:
    """The outcome, a code and a text."""
    if isinstance(error, RangeError):
        return (*_by_status(error.status, error.code), error.detail[:_TEXT_CHARS_MAX])
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
