"""
An external sort of rows, in bounded memory.

Rule 1: the order is a function of the rows alone. Two attempts at a task that get the same rows in
different orders, as after a shuffle, produce the same sequence, so the sink can number its
requests. For this, `keys` must be a total order: rows with equal keys are equal.

Rule 2: only Arrow compares values (strings, nulls, NaN), so sorting a run and merging runs cannot
differ.

Rows are collected up to `buffer_bytes`, sorted, and written to a temporary file as a run; at the
end the runs are merged. A file has no name, so it disappears with the process, even if killed.

A merge holds the next rows of every run, its head. No later row of a run is below the last row of
its head. So all rows up to the lowest of these last rows are known: they are taken from all heads
by binary search, sorted, and yielded.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["ExternalSort"]

HEAD_BYTES: Final = 256 << 10
"""The approximate size of the head of each run during a merge."""
RUNS_MAX: Final = 32
"""This many runs are merged to one, which bounds the heads and the open files."""


class ExternalSort:
    """
    Sorts the rows of record batches of one schema by `keys`.

    Peak memory is about three times `buffer_bytes`: rows are collected, joined, and sorted.
    """

    def __init__(self, keys: Sequence[str], buffer_bytes: int) -> None:
        self._keys = [(name, "ascending") for name in keys]
        self._buffer_bytes = buffer_bytes
        self._collected: list[Any] = []
        self._collected_bytes = 0
        self._levels: list[list[_SortedRun]] = []

    def add(self, rows: Any) -> None:
        if not rows.num_rows:
            return
        self._collected.append(rows)
        self._collected_bytes += rows.nbytes
        if self._collected_bytes >= self._buffer_bytes:
            self._put(0, _SortedRun.spilled([self._sorted()]))

    def sorted(self) -> Iterator[Any]:
        """All rows in order."""
        runs = [run for level in self._levels for run in level]
        if self._collected:
            # The last run needs no file.
            rest = self._sorted()
            if not runs:
                yield rest
                return
            runs.append(_SortedRun(_pieces(rest)))
        yield from _merged(runs, self._keys)

    @property
    def spilled(self) -> int:
        """The number of runs in files."""
        return sum(map(len, self._levels))

    def close(self) -> None:
        self._collected.clear()
        for level in self._levels:
            for run in level:
                run.close()
        self._levels.clear()

    def _sorted(self) -> Any:
        collected, self._collected, self._collected_bytes = self._collected, [], 0
        return _sort(collected, self._keys)

    def _put(self, level: int, run: "_SortedRun") -> None:
        """Keep a run; `RUNS_MAX` runs of one level are merged to one of the next."""
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        runs.append(run)
        if len(runs) == RUNS_MAX:
            merged = _SortedRun.spilled(_merged(runs, self._keys))
            for old in runs:
                old.close()
            runs.clear()
            self._put(level + 1, merged)


class _SortedRun:
    """Sorted rows, in memory or in a file, and their head in memory."""

    def __init__(self, pieces: Iterator[Any], file: IO[bytes] | None = None) -> None:
        self.head: Any = None
        self._pieces = pieces
        self._file = file

    @classmethod
    def spilled(cls, batches: Iterable[Any]) -> "_SortedRun":
        """Write rows, one batch at least, to a file."""
        file = tempfile.TemporaryFile(prefix="tailrace-sink-")  # noqa: SIM115
        try:
            pieces = (piece for batch in batches for piece in _pieces(batch))
            first = next(pieces)
            with pa.ipc.new_stream(file, first.schema) as writer:
                for piece in chain([first], pieces):
                    writer.write_batch(piece)
            file.seek(0)
            return cls(iter(pa.ipc.open_stream(file)), file)
        except BaseException:
            file.close()
            raise

    def fill(self) -> bool:
        """Load the next head if this one is empty; false at the end of the run."""
        while self.head is None or not self.head.num_rows:
            self.head = next(self._pieces, None)
            if self.head is None:
                return False
        return True

    def take_until(self, bound: Any, keys: list[tuple[str, str]]) -> Any:
        """Remove the rows up to `bound` from the head, and return them."""
        low, high = 0, self.head.num_rows
        while low < high:
            # Test the first row first: it is enough where runs do not overlap.
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


def _pieces(batch: Any) -> Iterator[Any]:
    """Slices of about the size of a head."""
    step = max(1, batch.num_rows * HEAD_BYTES // max(1, batch.nbytes))
    for at in range(0, batch.num_rows, step):
        yield batch.slice(at, step)


def _merged(runs: Sequence[_SortedRun], keys: list[tuple[str, str]]) -> Iterator[Any]:
    left = [run for run in runs if run.fill()]
    while left:
        lasts = _joined([run.head.slice(run.head.num_rows - 1) for run in left])
        lowest = pc.sort_indices(lasts, sort_keys=keys)[0].as_py()
        bound = lasts.slice(lowest, 1)
        yield _sort([run.take_until(bound, keys) for run in left], keys)
        left = [run for run in left if run.fill()]


def _sort(batches: Sequence[Any], keys: list[tuple[str, str]]) -> Any:
    rows = _joined(batches)
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


def _joined(batches: Sequence[Any]) -> Any:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def _is_above(row: Any, bound: Any, keys: list[tuple[str, str]]) -> bool:
    # The sort is stable: of two equal rows, the first stays first.
    first = pc.sort_indices(pa.concat_batches([row, bound]), sort_keys=keys)[0]
    return bool(first.as_py() == 1)
