"""
Messages as an Arrow stream: slices in, encoded record batches out.

`status` and `detail` are for the rows that end a range. Those come in batches of their own, right
after the messages before them, so that who reads messages need not pick them out.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from tailrace.engine.read import Slice
from tailrace.server.handlers.bulk.columns import TYPES, Columns, Gathered
from tailrace.server.handlers.bulk.stream_reference import Source

__all__ = ["RowBatches"]

BATCH_BYTES: Final = 512 << 10
BATCH_ROWS: Final = 16_384
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class RowBatches:
    """Rows in the making."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._schema = pa.schema([(name, TYPES[name]) for name in columns])
        self.has_producers = "producer" in columns
        self.head = bytes(self._schema.serialize())
        """What the stream begins with,"""
        self.end_mark = _END
        """and ends with."""
        self._gathered = Gathered()
        self._ended: list[tuple[int, str, str | None, str | None]] = []

    @property
    def full(self) -> bool:
        gathered = self._gathered
        rows = len(gathered.lengths) + len(self._ended)
        return gathered.bytes >= BATCH_BYTES or rows >= BATCH_ROWS

    def add(self, source: Source, piece: Slice) -> None:
        """Messages of a range: the next ones of the last range, or the first of another."""
        if piece.parts:
            self._gathered.add(source, piece)

    def end(self, index: int, status: str, detail: str | None, offset: str | None) -> None:
        """A range is over."""
        self._ended.append((index, status, detail, offset))

    def take(self) -> list[memoryview]:
        """What was added since the last time, encoded."""
        found = []
        if self._gathered.lengths:
            made = Columns(self._gathered)
            found.append(self._encode([made.column(name) for name in self._columns]))
            self._gathered = Gathered()
        if self._ended:
            found.append(self._encode(self._ends()))
            self._ended = []
        return found

    def _ends(self) -> list[Any]:
        indexes, statuses, details, offsets = zip(*self._ended, strict=True)
        known = {"range": indexes, "status": statuses, "detail": details, "next_offset": offsets}
        nothing = [None] * len(indexes)
        return [pa.array(known.get(name, nothing), TYPES[name]) for name in self._columns]

    def _encode(self, arrays: list[Any]) -> memoryview:
        return memoryview(pa.record_batch(arrays, schema=self._schema).serialize())
