"""
Rows in one order, whatever order they came in, in bounded memory.

Rule 1: the order is a function of the rows alone. Two attempts at a task that get the same rows in
different orders, as after a shuffle, hand out the same sequence; so the sink can number what it
cuts from it. For that, `keys` must order the rows totally: rows that are equal by them are equal.

Rule 2: Arrow alone compares. Nothing here has an opinion of its own on how texts, nulls or NaN
are ordered, so that sorting a run and merging runs cannot differ.

An external sort: rows are gathered up to `buffer_bytes`, sorted, and written to a temporary file
as a run; at the end the runs are merged. A file has no name from the moment it is made, so that it
is gone with the process, even one that is killed.

Merging holds the next rows of every run, its head. No run has rows, beyond its head, below the
head's last row. So whatever is not above the lowest of these last rows is complete: it is cut off
all heads by binary search, sorted, and handed out.
"""

import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["RowOrder"]

HEAD_BYTES: Final = 256 << 10
"""Of each run that is being merged, about so much is in memory."""
RUNS_MAX: Final = 32
"""So many runs become one, so that neither heads nor open files are without limit."""


class RowOrder:
    """
    Takes record batches of one schema, and hands out their rows in the order of `keys`.

    Peak memory is about three times `buffer_bytes`: what was gathered, joined, and sorted.
    """

    def __init__(self, keys: Sequence[str], buffer_bytes: int) -> None:
        self._keys = [(name, "ascending") for name in keys]
        self._buffer_bytes = buffer_bytes
        self._gathered: list[Any] = []
        self._gathered_bytes = 0
        self._levels: list[list[_Run]] = []

    def add(self, rows: Any) -> None:
        """Take a record batch."""
        if not rows.num_rows:
            return
        self._gathered.append(rows)
        self._gathered_bytes += rows.nbytes
        if self._gathered_bytes >= self._buffer_bytes:
            self._put(0, _Run([self._sorted()]))

    def sorted(self) -> Iterator[Any]:
        """All rows in order, as record batches."""
        runs = [run for level in self._levels for run in level]
        rest = self._sorted() if self._gathered else None
        if not runs:
            if rest is not None:
                yield rest
            return
        if rest is not None:
            # Not through a file: it is in memory already.
            runs.append(_Run([rest], spill=False))
        yield from _merged(runs, self._keys)

    @property
    def spilled(self) -> int:
        """How many runs lie in files."""
        return sum(map(len, self._levels))

    def close(self) -> None:
        """Give back memory and disk."""
        self._gathered.clear()
        for level in self._levels:
            for run in level:
                run.close()
        self._levels.clear()

    def __enter__(self) -> "RowOrder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _sorted(self) -> Any:
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        return _sort(gathered, self._keys)

    def _put(self, level: int, run: "_Run") -> None:
        """Keep a run; as many as may be of one level become one of the next."""
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        runs.append(run)
        if len(runs) == RUNS_MAX:
            merged = _Run(_merged(runs, self._keys))
            for old in runs:
                old.close()
            runs.clear()
            self._put(level + 1, merged)


class _Run:
    """Sorted rows that lie in a file, and the head of them that is in memory."""

    def __init__(self, batches: Sequence[Any] | Iterator[Any], *, spill: bool = True) -> None:
        self._file: IO[bytes] | None = None
        self._pieces: Iterator[Any]
        if spill:
            self._file = tempfile.TemporaryFile(prefix="tailrace-sink-")  # noqa: SIM115
            self._pieces = self._read(self._file)
            try:
                _write(batches, self._file)
            except BaseException:
                self.close()
                raise
        else:
            self._pieces = (piece for batch in batches for piece in _pieces(batch))
        self.head: Any = None

    @staticmethod
    def _read(file: IO[bytes]) -> Iterator[Any]:
        file.seek(0)
        yield from pa.ipc.open_stream(file)

    def fill(self) -> bool:
        """Have a head, unless there is nothing left."""
        while self.head is None or not self.head.num_rows:
            self.head = next(self._pieces, None)
            if self.head is None:
                return False
        return True

    def cut(self, bound: Any, keys: list[tuple[str, str]]) -> Any:
        """Take the rows off the head that are not above a row."""
        low, high = 0, self.head.num_rows
        while low < high:
            # First the first row: where runs follow each other, that is all.
            middle = (low + high) // 2 if low or high < self.head.num_rows else 0
            if _is_above(self.head.slice(middle, 1), bound, keys):
                high = middle
            else:
                low = middle + 1
        taken, self.head = self.head.slice(0, low), self.head.slice(low)
        return taken

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _write(batches: Sequence[Any] | Iterator[Any], file: IO[bytes]) -> None:
    writer = None
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_stream(file, batch.schema)
        for piece in _pieces(batch):
            writer.write_batch(piece)
    if writer is not None:
        writer.close()


def _pieces(batch: Any) -> Iterator[Any]:
    """A batch in slices of about the size of a head."""
    step = max(1, batch.num_rows * HEAD_BYTES // max(1, batch.nbytes))
    for at in range(0, batch.num_rows, step):
        yield batch.slice(at, step)


def _merged(runs: Sequence[_Run], keys: list[tuple[str, str]]) -> Iterator[Any]:
    left = [run for run in runs if run.fill()]
    while left:
        lasts = _joined([run.head.slice(run.head.num_rows - 1) for run in left])
        lowest = pc.sort_indices(lasts, sort_keys=keys)[0].as_py()
        bound = lasts.slice(lowest, 1)
        yield _sort([run.cut(bound, keys) for run in left], keys)
        left = [run for run in left if run.fill()]


def _sort(batches: Sequence[Any], keys: list[tuple[str, str]]) -> Any:
    rows = _joined(batches)
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


def _joined(batches: Sequence[Any]) -> Any:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def _is_above(row: Any, bound: Any, keys: list[tuple[str, str]]) -> bool:
    # The sort is stable: of two that are equal, the first stays the first.
    first = pc.sort_indices(pa.concat_batches([row, bound]), sort_keys=keys)[0]
    return bool(first.as_py() == 1)
