"""
The columns of a record batch, made by numpy and Arrow from slices.

A row should cost little more than the copy of its value. What is the same for a range or a record
is written once and repeated; `offset` and `next_offset` share one buffer, 33 bytes apart; digits
come from a table.
"""

from array import array
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engine.read import Slice
from tailrace.protocol.offset import Offset
from tailrace.server.handlers.bulk.stream_reference import Source

__all__ = ["TYPES", "GatheredSlices", "RowColumns"]

TYPES: Final[dict[str, Any]] = {
    "range": pa.int32(),
    "bucket": pa.utf8(),
    "stream": pa.utf8(),
    "message": pa.int64(),
    "offset": pa.utf8(),
    "next_offset": pa.utf8(),
    "time": pa.timestamp("ms", "UTC"),
    "content_type": pa.utf8(),
    "value": pa.binary(),
    "size": pa.int32(),
    "producer": pa.utf8(),
    "status": pa.utf8(),
    "detail": pa.utf8(),
}
# A token is `{message}_{byte}`, 16 digits each, written four digits at a time.
_TOKEN: Final = np.dtype([("message", "<u4", 4), ("mark", "u1"), ("byte", "<u4", 4)])
_TOKEN_BYTES: Final = _TOKEN.itemsize
_DIGITS: Final = np.frombuffer(b"".join(b"%04d" % n for n in range(10_000)), "<u4")
_E8: Final = 10**8
_E4: Final = 10**4


class GatheredSlices:
    """The slices that a batch is made of, as read."""

    __slots__ = ("bytes", "counts", "lengths", "parts", "producers", "record_counts", "sources",
                 "starts", "times")  # fmt: skip

    def __init__(self) -> None:
        self.bytes = 0
        # One item for each range: a run of messages without a gap.
        self.sources: list[Source] = []
        self.starts: list[Offset] = []
        self.counts: list[int] = []
        # One item for each record.
        self.parts: list[bytes | memoryview] = []
        self.times: list[int] = []
        self.record_counts: list[int] = []
        self.producers: list[str | None] = []
        # One item for each message: its stored length.
        self.lengths = array("I")

    def add(self, source: Source, piece: Slice) -> None:
        self.parts += piece.parts
        self.times += piece.times
        self.producers += piece.producers
        for lengths in piece.lengths:
            self.record_counts.append(len(lengths))
            self.lengths.extend(lengths)
        self.bytes += piece.end.byte - piece.start.byte
        count = piece.end.message - piece.start.message
        if self.sources and self.sources[-1] is source:
            self.counts[-1] += count
        else:
            self.sources.append(source)
            self.starts.append(piece.start)
            self.counts.append(count)


class RowColumns:
    """One batch of messages, column by column."""

    def __init__(self, rows: GatheredSlices) -> None:
        self._rows = rows
        # No message has 2 GiB.
        self._lengths = np.frombuffer(rows.lengths, np.int32)
        self._count = len(self._lengths)
        self._counts = np.array(rows.counts)
        self._runs = len(rows.counts)
        self._tokens: Any = None

    def column(self, name: str) -> Any:
        if name in ("bucket", "stream", "content_type"):
            return self._texts([getattr(item, name) for item in self._rows.sources], self._counts)
        if name in ("status", "detail"):
            # Only rows that end a range have them.
            return pa.nulls(self._count, pa.utf8())
        made: Any = getattr(self, "_" + name)()
        return made

    def _repeated(self, values: list[int], dtype: Any) -> npt.NDArray[Any]:
        """Repeat one number for each range, for each of its messages."""
        return np.repeat(np.array(values, dtype), self._counts)

    def _texts(self, values: list[str | None], counts: npt.NDArray[Any]) -> Any:
        """Repeat one text for each range or record, for each of its messages."""
        if len(values) == 1 or values.count(values[0]) == len(values):
            return _same_text(values[0], self._count)
        distinct = {value: at for at, value in enumerate(dict.fromkeys(values))}
        at = np.array([distinct[value] for value in values], np.int32)
        return pa.array(list(distinct), pa.utf8()).take(pa.array(np.repeat(at, counts)))

    def _range(self) -> Any:
        indexes = [source.range for source in self._rows.sources]
        return pa.array(self._repeated(indexes, np.int32))

    def _producer(self) -> Any:
        return self._texts(self._rows.producers, np.array(self._rows.record_counts))

    def _time(self) -> Any:
        times = np.repeat(np.array(self._rows.times, np.int64), self._rows.record_counts)
        return pa.array(times).view(TYPES["time"])

    def _message(self) -> Any:
        # The first message of each run, less the number of rows before it.
        before = np.cumsum(self._counts) - self._counts
        firsts = np.array([start.message for start in self._rows.starts]) - before
        return pa.array(np.arange(self._count, dtype=np.int64) + np.repeat(firsts, self._counts))

    def _size(self) -> Any:
        commas = self._repeated([source.json for source in self._rows.sources], np.int32)
        return pa.array(self._lengths - commas)

    def _value(self) -> Any:
        parts = self._rows.parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        ends = np.zeros(self._count + 1, np.int32)
        np.cumsum(self._lengths, out=ends[1:])
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
        values = pa.Array.from_buffers(pa.binary(), self._count, buffers)
        pieces = []
        at = 0
        for json, count in _runs_by_type(self._rows.sources, self._rows.counts):
            piece = values.slice(at, count)
            # Without the comma that is stored after each.
            pieces.append(pc.binary_slice(piece, 0, -1) if json else piece)
            at += count
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def _offset(self) -> Any:
        tokens = self._boundaries()
        if self._runs == 1:
            return _fixed(pa.py_buffer(tokens), self._count)
        # The last boundary of each run does not begin a message.
        return _fixed(pa.py_buffer(tokens[self._rows_at()]), self._count)

    def _next_offset(self) -> Any:
        tokens = self._boundaries()
        if self._runs == 1:
            return _fixed(pa.py_buffer(tokens)[_TOKEN_BYTES:], self._count)
        return _fixed(pa.py_buffer(tokens[self._rows_at() + 1]), self._count)

    def _rows_at(self) -> npt.NDArray[Any]:
        """The index of each row's start among the boundaries; a run has one boundary more."""
        return np.arange(self._count) + np.repeat(np.arange(self._runs), self._counts)

    def _boundaries(self) -> Any:
        """The offset before each message, and after the last message of each run."""
        if self._tokens is None:
            starts = self._rows.starts
            count = self._count + self._runs
            steps = np.empty(count, np.int64)
            numbers = np.ones(count, np.int64)
            if self._runs == 1:
                steps[0], numbers[0] = starts[0].byte, starts[0].message
                steps[1:] = self._lengths
            else:
                steps[self._rows_at() + 1] = self._lengths
                ends = np.cumsum(self._lengths, dtype=np.int64)[np.cumsum(self._counts) - 1]
                first = np.cumsum(self._counts + 1) - self._counts - 1
                steps[first] = _gaps([start.byte for start in starts], np.diff(ends, prepend=0))
                numbers[first] = _gaps([start.message for start in starts], self._counts)
            self._tokens = _tokens(np.cumsum(numbers), np.cumsum(steps))
        return self._tokens


def _gaps(starts: list[int], sizes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distance of each run from the end of the run before it."""
    begins = np.array(starts, np.int64)
    gaps = begins.copy()
    gaps[1:] -= begins[:-1] + sizes[:-1]
    return gaps


def _tokens(messages: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    tokens = np.empty(len(messages), _TOKEN)
    tokens["mark"] = ord("_")
    _write_digits(tokens["message"], messages)
    _write_digits(tokens["byte"], numbers)
    return tokens


def _write_digits(out: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> None:
    """Write 16 digits of each number."""
    upper = numbers // _E8
    lower = (numbers - upper * _E8).astype(np.uint32)
    thousands = lower // _E4
    out[:, 2] = _DIGITS[thousands]
    out[:, 3] = _DIGITS[lower - thousands * _E4]
    if upper[0] == upper[-1] and upper.min() == upper.max():
        # Most numbers are small.
        upper = upper[:1]
    out[:, 0] = _DIGITS[upper // _E4]
    out[:, 1] = _DIGITS[upper % _E4]


def _fixed(data: Any, count: int) -> Any:
    """Tokens, all of one length, as text."""
    ends = np.arange(0, (count + 1) * _TOKEN_BYTES, _TOKEN_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.utf8(), count, [None, pa.py_buffer(ends), data])


def _same_text(value: str | None, count: int) -> Any:
    if value is None:
        return pa.nulls(count, pa.utf8())
    text = value.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
    return pa.Array.from_buffers(
        pa.utf8(), count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)]
    )


def _runs_by_type(sources: list[Source], counts: list[int]) -> list[tuple[bool, int]]:
    """The lengths of alternating runs of JSON messages and others."""
    found: list[tuple[bool, int]] = []
    for source, count in zip(sources, counts, strict=True):
        if found and found[-1][0] == source.json:
            found[-1] = (source.json, found[-1][1] + count)
        else:
            found.append((source.json, count))
    return found
