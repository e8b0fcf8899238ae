"""The results of a fold."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tailrace.spark.jobs.fold.plan import PlanEntry

__all__ = [
    "FAILED",
    "FOLDED",
    "GONE",
    "PLANNED",
    "SKIPPED",
    "SUPERSEDED",
    "FoldResult",
    "StreamFold",
    "unfolded",
]

FOLDED: Final = "folded"
SUPERSEDED: Final = "superseded"
GONE: Final = "gone"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
PLANNED: Final = "planned"


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
    def ok(self) -> bool:
        return not self.failures

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
