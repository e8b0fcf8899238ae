"""
Messages of many ranges as Arrow record batches, from `POST /-/rows`.

Rule 1: only complete record batches count. If a response ends early, by its size limit or by a
network failure, each batch before that is yielded once, and the next request starts after it.

Rule 2: nothing is done row by row. A batch is yielded as it arrived; the offsets of the ranges are
looked up only if a response ended before the ranges did.

The server ends ranges in order, and reports each end right after the batch with its last messages.
So a range whose end was not reported has its last messages in the last batch, or none yet.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.client import AnswerInvalid, Client, StreamName, Unreachable

__all__ = ["Range", "RangeError", "read_rows"]

RANGES_MAX: Final = 10_000
"""At most this many ranges per request."""
BYTES_MAX: Final = 256 << 20
"""A response ends after about this many bytes."""
_COMPLETE: Final = "end"


@dataclass(frozen=True, slots=True)
class Range:
    """The messages of a stream from one offset, or `-1` for its beginning, to before another."""

    name: StreamName
    start: str
    until: str


@dataclass(frozen=True, slots=True)
class RangeError:
    """Range `index` cannot be read to its end."""

    index: int
    status: int
    code: str
    detail: str
    offset: str | None
    """For 410, the earliest offset that is retained."""


def read_rows(
    client: Client, ranges: Sequence[Range], columns: Sequence[str]
) -> Iterator[Any | RangeError]:
    """
    The messages of ranges, in their order, with these columns; `RangeError` for those that fail.

    An error comes after the messages of its range that could be read, and possibly after messages
    of later ranges, which share a batch.

    Columns are range (the index of one of `ranges`), bucket, stream, message, offset, next_offset,
    time, content_type, value, size and producer.

    Raises:
        Refused: The server does not support this request, or rejects it.
        Unreachable: There were more failures in a row than the client's `Retry` allows.
    """
    progress = _RangeProgress(ranges, tuple(columns))
    failures = 0
    while progress.ended < len(ranges):
        before = progress.state
        response = _ResponseFile(client, progress.request())
        try:
            yield from progress.take(response)
            failed = response.failure
        finally:
            response.close()
        if failed is None:
            if progress.state == before:
                raise AnswerInvalid(client.url, "the response to a request for rows has none")
            failures = 0
            continue
        failures = 1 if progress.state != before else failures + 1
        if failures >= client.retry.attempts_max:
            raise failed
        sleep(client.retry.pause_s(failures))


class _RangeProgress:
    """How far the ranges are read."""

    def __init__(self, ranges: Sequence[Range], columns: tuple[str, ...]) -> None:
        self._ranges = ranges
        self._columns = columns
        self.ended = 0
        """The number of ranges that are complete, from the first one on."""
        self._first = 0
        # The next offset of incomplete ranges, by their index.
        self._starts: dict[int, str] = {}
        self._last: Any = None
        self._batches = 0

    @property
    def state(self) -> tuple[int, int]:
        """Changes whenever data arrives."""
        return self.ended, self._batches

    def request(self) -> bytes:
        """The body of the next request."""
        self._find_starts()
        self._first = self.ended
        requested = [
            {
                **self._ranges[index].name.fields(),
                "from": self._starts.get(index, self._ranges[index].start),
                "until": self._ranges[index].until,
            }
            for index in range(self._first, min(len(self._ranges), self._first + RANGES_MAX))
        ]
        body = {"ranges": requested, "columns": self._columns, "bytes_max": BYTES_MAX}
        return msgspec.json.encode(body)

    def _find_starts(self) -> None:
        """Find the next offsets of the ranges that the last response left incomplete."""
        last, self._last = self._last, None
        self._starts = {key: at for key, at in self._starts.items() if key >= self.ended}
        if last is None:
            return
        # The last row of each range precedes the first row of another.
        indexes = last.column("range")
        begins = pc.not_equal(indexes.slice(1), indexes.slice(0, len(indexes) - 1))
        ends = [*pc.indices_nonzero(begins).to_pylist(), len(indexes) - 1]
        tokens = last.column("next_offset")
        for at in ends:
            index = indexes[at].as_py() + self._first
            if index >= self.ended:
                self._starts[index] = tokens[at].as_py()

    def take(self, response: "_ResponseFile") -> Iterator[Any | RangeError]:
        """The content of a response, until it ends."""
        try:
            for batch in pa.ipc.open_stream(pa.PythonFile(response, mode="r")):
                self._batches += 1
                if batch.column("status").null_count == len(batch):
                    self._last = batch
                    yield self._chosen(batch)
                else:
                    yield from self._ends(batch)
        except (pa.ArrowInvalid, OSError) as error:
            # Truncated inside a batch, or not Arrow.
            if response.failure is None:
                response.failure = Unreachable(response.url, f"the response is truncated: {error}")

    def _chosen(self, batch: Any) -> Any:
        chosen = batch.select(self._columns)
        if self._first and "range" in self._columns:
            indexes = pc.add(batch.column("range"), pa.scalar(self._first, pa.int32()))
            at = chosen.schema.get_field_index("range")
            chosen = chosen.set_column(at, chosen.schema.field(at), indexes)
        return chosen

    def _ends(self, batch: Any) -> Iterator[RangeError]:
        """Count the ranges that are complete, in order; yields those that failed."""
        statuses = batch.column("status")
        self.ended += len(batch)
        if pc.all(pc.equal(statuses, _COMPLETE)).as_py():
            return
        failed = batch.filter(pc.not_equal(statuses, _COMPLETE)).select(
            ["range", "status", "detail", "next_offset"]
        )
        for row in failed.to_pylist():
            problem = json.loads(row["detail"])
            yield RangeError(
                row["range"] + self._first,
                problem["status"],
                row["status"],
                problem["detail"],
                row["next_offset"],
            )


class _ResponseFile:
    """A response as a file for Arrow; a failure is kept, and ends the file."""

    def __init__(self, client: Client, body: bytes) -> None:
        self.url = f"{client.url}/-/rows"
        self.failure: Unreachable | None = None
        self._source = client.rows(body)
        self._chunk = memoryview(b"")
        # Fetched here so that a refusal is raised to the caller, not through Arrow.
        self._fetch()

    closed = False

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, or fewer at the end."""
        parts = []
        while size > 0 and (self._chunk or self._fetch()):
            part = self._chunk[:size]
            self._chunk = self._chunk[len(part) :]
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def _fetch(self) -> bool:
        try:
            self._chunk = memoryview(next(self._source, b""))
        except Unreachable as error:
            self.failure = error
        return bool(self._chunk)

    def close(self) -> None:
        self._source.close()
