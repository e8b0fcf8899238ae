"""What a fold tells of each stream, of all of them, and how both travel through Spark."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

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
    """What became of one stream; the fields are the columns of `RESULT_SQL`."""

    bucket: str
    stream: str
    outcome: str
    """folded, superseded, gone, failed, skipped, or, of a dry run, planned."""
    messages: int
    """That were folded, or would be."""
    bytes_before: int
    """Of the snapshot and of the messages after it, before."""
    bytes_after: int | None
    """Of the snapshot that is there now; None if none was published."""
    offset: str | None
    """Of the snapshot that is there now; of a failure, where the message is that was refused."""
    code: str | None = None
    error: str | None = None


def unfolded(
    entry: PlanEntry,
    outcome: str,
    code: str | None = None,
    error: str | None = None,
    offset: str | None = None,
) -> StreamFold:
    """The result of a stream that nothing was published for."""
    return StreamFold(
        bucket=entry.bucket,
        stream=entry.stream,
        outcome=outcome,
        messages=entry.messages,
        bytes_before=entry.bytes_before,
        bytes_after=None,
        offset=offset,
        code=code,
        error=error,
    )


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What a fold did."""

    streams: list[StreamFold]
    """In the order of the listing; those that were not due are not among them."""
    not_due: int

    @property
    def ok(self) -> bool:
        """No stream failed."""
        return not self.failures

    @property
    def failures(self) -> list[StreamFold]:
        return [stream for stream in self.streams if stream.outcome == FAILED]

    @property
    def outcomes(self) -> dict[str, int]:
        """How many streams of each outcome."""
        return dict(Counter(stream.outcome for stream in self.streams))

    @property
    def messages(self) -> int:
        """Of the streams that were folded, or would be."""
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
    """Plan entries as rows, each with the number of its group."""
    import pyarrow as pa

    rows = [(number, *astuple(entry)) for number, found in enumerate(groups) for entry in found]
    names = ("group", *(field.name for field in fields(PlanEntry)))
    kinds = (pa.int32(), *(pa.string(),) * 5, pa.int64())
    columns = [[row[place] for row in rows] for place in range(len(names))]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=list(names))


def entries_of(batch: "pa.RecordBatch") -> list[PlanEntry]:
    """The inverse, of some of the rows."""
    columns = [batch.column(field.name).to_pylist() for field in fields(PlanEntry)]
    return [PlanEntry(*row) for row in zip(*columns, strict=True)]


def results_batch(results: Sequence[StreamFold]) -> "pa.RecordBatch":
    """Results as rows."""
    import pyarrow as pa

    names = [field.name for field in fields(StreamFold)]
    numbers = ("messages", "bytes_before", "bytes_after")
    arrays: list[Any] = [
        pa.array(
            [getattr(result, name) for result in results],
            pa.int64() if name in numbers else pa.string(),
        )
        for name in names
    ]
    return pa.record_batch(arrays, names=names)
