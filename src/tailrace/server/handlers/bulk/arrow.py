"""
Messages as an Arrow stream: slices in, encoded record batches out.

Rows that end a range have a `status` and a `detail`. They come in separate batches, after the
messages before them, so that a batch has either messages or range ends.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from tailrace.engine.read import Slice
from tailrace.server.handlers.bulk.columns import TYPES, GatheredSlices, RowColumns
from tailrace.server.handlers.bulk.stream_reference import Source

__all__ = ["RowBatches"]

BATCH_BYTES: Final = 512 << 10
BATCH_ROWS: Final = 16_384
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class RowBatches:
    """Collects rows and encodes them, batch by batch."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._schema = pa.schema([(name, TYPES[name]) for name in columns])
        self.has_producers = "producer" in columns
        self.head = bytes(self._schema.serialize())
        """The first bytes of the stream: its schema."""
        self.end_mark = _END
        """The last bytes of the stream."""
        self._gathered = GatheredSlices()
        self._ended: list[tuple[int, str, str | None, str | None]] = []

    @property
    def full(self) -> bool:
        gathered = self._gathered
        rows = len(gathered.lengths) + len(self._ended)
        return gathered.bytes >= BATCH_BYTES or rows >= BATCH_ROWS

    def add(self, source: Source, piece: Slice) -> None:
        """Add messages of a range: more of the current range, or the first of another."""
        if piece.parts:
            self._gathered.add(source, piece)

    def end(self, index: int, status: str, detail: str | None, offset: str | None) -> None:
        """Add the row that ends a range."""
        self._ended.append((index, status, detail, offset))

    def take(self) -> list[memoryview]:
        """Encode what was added since the last call."""
        found = []
        if self._gathered.lengths:
            made = RowColumns(self._gathered)
            found.append(self._encode([made.column(name) for name in self._columns]))
            self._gathered = GatheredSlices()
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
