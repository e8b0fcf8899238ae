"""The results of a fold, and the conversion of plan entries and results to Arrow."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Final

from tailrace.spark.jobs.fold.plan import PlanEntry

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FAILED",
    "FOLDED",
    "GONE",
    "PLANNED",
    "RESULT_SQL",
    "SKIPPED",
    "SUPERSEDED",
    "FoldResult",
    "StreamFold",
    "entries_of",
    "entries_table",
    "results_batch",
    "unfolded",
]

FOLDED: Final = "folded"
SUPERSEDED: Final = "superseded"
GONE: Final = "gone"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
PLANNED: Final = "planned"

RESULT_SQL: Final = (
    "bucket string, stream string, outcome string, messages long, bytes_before long, "
    "bytes_after long, offset string, code string, error string"
)


@dataclass(frozen=True, slots=True)
class StreamFold:
    """The result of one stream; the fields are the columns of `RESULT_SQL`."""

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


def entries_table(groups: Sequence[Sequence[PlanEntry]]) -> "pa.Table":
    """Plan entries as rows, each with its group number."""
    import pyarrow as pa

    rows = [(number, *astuple(entry)) for number, found in enumerate(groups) for entry in found]
    names = ("group", *(field.name for field in fields(PlanEntry)))
    kinds = (pa.int32(), *(pa.string(),) * 5, pa.int64())
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=list(names))


def entries_of(batch: "pa.RecordBatch") -> list[PlanEntry]:
    """The inverse of `entries_table`, for some of the rows."""
    columns = [batch.column(field.name).to_pylist() for field in fields(PlanEntry)]
    return [PlanEntry(*row) for row in zip(*columns, strict=True)]


def results_batch(results: Sequence[StreamFold]) -> "pa.RecordBatch":
    import pyarrow as pa

    columns = [column.split() for column in RESULT_SQL.split(", ")]
    arrays = [
        pa.array(
            [getattr(result, name) for result in results],
            pa.int64() if kind == "long" else pa.string(),
        )
        for name, kind in columns
    ]
    return pa.record_batch(arrays, names=[name for name, _ in columns])
