"""
The results of a fold. The outcome of a stream whose fold failed:

    410                                 there is a later snapshot           superseded
    409 when publishing                 another snapshot at this offset     superseded
    404                                 the stream was deleted, or expired  gone
    the offset is past the tail,        the stream was deleted and created
    or inside a message                 again                               gone
    any other error                                                         failed
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tailrace.client import AnswerInvalid, Refused, Unreachable
from tailrace.exceptions import TailraceError
from tailrace.spark.folds import MessageRefused, StateRefused
from tailrace.spark.jobs.fold.plan import PlanEntry

__all__ = [
    "FAILED",
    "FOLDED",
    "GONE",
    "PLANNED",
    "SKIPPED",
    "SUPERSEDED",
    "FoldResult",
    "SnapshotForeign",
    "SnapshotReplaced",
    "StreamFold",
    "StreamIncomplete",
    "outcome_of",
    "unfolded",
]

FOLDED: Final = "folded"
SUPERSEDED: Final = "superseded"
GONE: Final = "gone"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
PLANNED: Final = "planned"

_OF_ANOTHER_STREAM: Final = ("offset-beyond-tail", "offset-misaligned", "snapshot-beyond-tail")
_TEXT_CHARS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class StreamFold:
    """The result of one stream."""

    bucket: str
    stream: str
    outcome: str
    """folded, superseded, gone, failed or skipped; planned in a dry run."""
    messages: int
    """The number of messages to fold."""
    bytes_before: int
    """The size of the old snapshot and of the messages after it."""
    bytes_after: int | None
    """The size of the new snapshot; None if none was published."""
    offset: str | None
    """The offset of the new snapshot; after a failure, that of the refused message."""
    code: str | None = None
    error: str | None = None


def unfolded(
    entry: PlanEntry,
    outcome: str,
    code: str | None = None,
    error: str | None = None,
    offset: str | None = None,
) -> StreamFold:
    """The result of a stream without a new snapshot."""
    sizes = entry.messages, entry.bytes_before, None
    return StreamFold(entry.bucket, entry.stream, outcome, *sizes, offset, code, error)


@dataclass(frozen=True, slots=True)
class FoldResult:
    """The results of a run."""

    streams: list[StreamFold]
    """In the order of the listing, without those that were not due."""
    not_due: int

    @property
    def failures(self) -> list[StreamFold]:
        return [stream for stream in self.streams if stream.outcome == FAILED]

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of streams of each outcome."""
        return dict(Counter(stream.outcome for stream in self.streams))

    @property
    def messages(self) -> int:
        """The number of messages that were folded, or would be."""
        return sum(stream.messages for stream in self._done())

    @property
    def bytes_before(self) -> int:
        return sum(stream.bytes_before for stream in self._done())

    @property
    def bytes_after(self) -> int:
        return sum(stream.bytes_after or 0 for stream in self._done())

    def _done(self) -> Iterator[StreamFold]:
        return (stream for stream in self.streams if stream.outcome in (FOLDED, PLANNED))


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
