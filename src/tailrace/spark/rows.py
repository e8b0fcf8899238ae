"""
Messages of many ranges as Arrow record batches, from `POST /-/rows`.

Rule 1: only whole record batches count. Whatever an answer was cut by, its budget or the network,
what arrived before is handed out once, and the next request begins right after it.

Rule 2: nothing is done row by row. A batch is handed out as it arrived; where each range is, is
looked up only when an answer ended before the ranges did.

The server ends ranges in their order, and tells so right after the batch with their last messages.
So all that is not yet known to be over lies in the last batch, or after it.
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
"""So many a request."""
BYTES_MAX: Final = 256 << 20
"""An answer ends after about this, and the next one begins there."""
_WHOLE: Final = "end"


@dataclass(frozen=True, slots=True)
class Range:
    """The messages of a stream from one offset, or `-1` for its beginning, to before another."""

    name: StreamName
    start: str
    until: str


@dataclass(frozen=True, slots=True)
class RangeError:
    """Range `index` cannot be read, or not further."""

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

    An error comes after the messages of its range that could be read, and perhaps after some of
    the ranges behind it: they share a batch.

    Columns are range (the index of one of `ranges`), bucket, stream, message, offset, next_offset,
    time, content_type, value, size and producer.

    Raises:
        Refused: The server has no rows, or refuses all of it.
        Unreachable: More failures in a row than the client's `Retry` allows.
    """
    progress = _Progress(ranges, tuple(columns))
    failures = 0
    while progress.ended < len(ranges):
        before = progress.state
        pieces = _Pieces(client, progress.request())
        try:
            yield from progress.take(pieces)
            failed = pieces.failure
        finally:
            pieces.close()
        if failed is None:
            if progress.state == before:
                raise AnswerInvalid(client.url, "the answer to a request for rows has none")
            failures = 0
            continue
        failures = 1 if progress.state != before else failures + 1
        if failures >= client.retry.attempts_max:
            raise failed
        sleep(client.retry.pause_s(failures))


class _Progress:
    """How far the ranges are read."""

    def __init__(self, ranges: Sequence[Range], columns: tuple[str, ...]) -> None:
        self._ranges = ranges
        self._columns = columns
        self.ended = 0
        """So many ranges are over, from the first one on."""
        self._first = 0
        # Where ranges that are not over are to be read on, by their index.
        self._starts: dict[int, str] = {}
        self._last: Any = None
        self._batches = 0

    @property
    def state(self) -> tuple[int, int]:
        """Differs as soon as anything came."""
        return self.ended, self._batches

    def request(self) -> bytes:
        """What to ask for next."""
        self._settle()
        self._first = self.ended
        asked = [
            {
                **self._ranges[index].name.fields(),
                "from": self._starts.get(index, self._ranges[index].start),
                "until": self._ranges[index].until,
            }
            for index in range(self._first, min(len(self._ranges), self._first + RANGES_MAX))
        ]
        body = {"ranges": asked, "columns": self._columns, "bytes_max": BYTES_MAX}
        return msgspec.json.encode(body)

    def _settle(self) -> None:
        """An answer is over: find out where its last ranges are, of those that are not."""
        last, self._last = self._last, None
        self._starts = {key: at for key, at in self._starts.items() if key >= self.ended}
        if last is None:
            return
        # The last row of each range: that before another one begins.
        indexes = last.column("range")
        begins = pc.not_equal(indexes.slice(1), indexes.slice(0, len(indexes) - 1))
        ends = [*pc.indices_nonzero(begins).to_pylist(), len(indexes) - 1]
        tokens = last.column("next_offset")
        for at in ends:
            index = indexes[at].as_py() + self._first
            if index >= self.ended:
                self._starts[index] = tokens[at].as_py()

    def take(self, pieces: "_Pieces") -> Iterator[Any | RangeError]:
        """What an answer has, as far as it goes."""
        try:
            for batch in pa.ipc.open_stream(pa.PythonFile(pieces, mode="r")):
                self._batches += 1
                if batch.column("status").null_count == len(batch):
                    self._last = batch
                    yield self._chosen(batch)
                else:
                    yield from self._ends(batch)
        except (pa.ArrowInvalid, OSError) as error:
            # Cut off in the middle of a batch, or not Arrow at all.
            if pieces.failure is None:
                pieces.failure = Unreachable(pieces.url, f"the rows were cut off: {error}")

    def _chosen(self, batch: Any) -> Any:
        chosen = batch.select(self._columns)
        if self._first and "range" in self._columns:
            indexes = pc.add(batch.column("range"), pa.scalar(self._first, pa.int32()))
            at = chosen.schema.get_field_index("range")
            chosen = chosen.set_column(at, chosen.schema.field(at), indexes)
        return chosen

    def _ends(self, batch: Any) -> Iterator[RangeError]:
        """The ranges that are over, in their order."""
        statuses = batch.column("status")
        self.ended += len(batch)
        if pc.all(pc.equal(statuses, _WHOLE)).as_py():
            return
        failed = batch.filter(pc.not_equal(statuses, _WHOLE)).select(
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


class _Pieces:
    """An answer as a file that Arrow reads; a failure shows as its end, and is kept."""

    def __init__(self, client: Client, body: bytes) -> None:
        self.url = f"{client.url}/-/rows"
        self.failure: Unreachable | None = None
        self._source = client.rows(body)
        self._piece = memoryview(b"")
        # The first one here: a refusal is raised to whoever asks, and not through Arrow.
        self._fetch()

    closed = False

    def read(self, size: int) -> bytes:
        """Exactly so many bytes, unless it ends before."""
        parts = []
        while size > 0 and (self._piece or self._fetch()):
            part = self._piece[:size]
            self._piece = self._piece[len(part) :]
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def _fetch(self) -> bool:
        try:
            self._piece = memoryview(next(self._source, b""))
        except Unreachable as error:
            self.failure = error
        return bool(self._piece)

    def close(self) -> None:
        self._source.close()
