"""
Divides ordered rows into numbered requests.

Rule 1: the rows of a request are a function of the ordered rows alone, not of record batches,
time, threads or responses. A repeated attempt sends the same bytes under the same number, and the
server stores each number once.

Rule 2: all rows of a stream go in one request, number 0, if they fit. Then their order does not
matter: the first attempt that arrives is stored as a whole. If nothing orders the rows, more than
fit are an error. After this error `orderBy` can be set and the batch run again: the requests that
were stored keep their numbers.

    application/json, +json   all rows up to maxRequestBytes, otherwise requests of CHUNK_BYTES
    any other type            each row is a request: an append is a message there
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.client import StreamName
from tailrace.client.encoding import is_json
from tailrace.protocol.limits import JSON_MESSAGES_MAX
from tailrace.spark.options import WriteOptions
from tailrace.spark.sink.columns import SinkColumns
from tailrace.spark.sink.errors import OrderUnknown, TypesMixed, ValueTooLarge

__all__ = ["CHUNK_BYTES", "RowChunk", "RowChunker"]

CHUNK_BYTES: Final = 1 << 20
"""A change breaks a batch that fails before an upgrade and is retried after it."""


@dataclass(frozen=True)
class RowChunk:
    """The rows of one request."""

    name: StreamName
    content_type: str
    seq: int
    values: Any
    rows: Any
    """The numbers of the rows in the partition."""

    @property
    def is_json(self) -> bool:
        return is_json(self.content_type)


@dataclass
class _OpenStream:
    """The stream whose rows are being collected."""

    name: StreamName
    content_type: str
    seq: int = 0
    size: int = 0
    is_split: bool = False
    """Whether its rows need several requests."""
    parts: list[tuple[Any, Any]] = field(default_factory=list)
    """The next request: values, and the numbers of their rows."""


class RowChunker:
    """Divides the rows of a partition into the rows of requests."""

    def __init__(
        self,
        options: WriteOptions,
        columns: SinkColumns,
        partition: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._options = options
        self._columns = columns
        self._partition = partition
        self._is_ordered = columns.stable or bool(columns.order_by)
        self._limit = options.max_request_bytes
        self._chunk_bytes = min(self._limit, chunk_bytes)
        self._open: _OpenStream | None = None
        self.streams = 0

    def chunks(self, batches: Iterator[Any]) -> Iterator[RowChunk]:
        """
        The rows of all requests of a partition.

        Raises:
            OrderUnknown, TypesMixed, ValueTooLarge: The rows cannot be sent.
        """
        for batch in batches:
            for start, end in self._groups(batch):
                yield from self._take(batch.slice(start, end - start))
        yield from self._finish()

    def _groups(self, batch: Any) -> Iterator[tuple[int, int]]:
        """The first and last row of each stream."""
        count = batch.num_rows
        changes = np.zeros(max(0, count - 1), bool)
        for name in ("bucket", "stream"):
            if name in batch.schema.names and count > 1:
                column = batch.column(name)
                differs = pc.not_equal(column.slice(1), column.slice(0, count - 1))
                changes |= differs.to_numpy(zero_copy_only=False)
        starts = [0, *(np.flatnonzero(changes) + 1).tolist()] if count else []
        return zip(starts, [*starts[1:], count], strict=False)

    def _take(self, group: Any) -> Iterator[RowChunk]:
        name = self._name(group)
        content_type = self._content_type(str(name), group)
        if self._open is None or self._open.name != name:
            yield from self._finish()
            self._open = _OpenStream(name, content_type)
            self.streams += 1
        elif self._open.content_type != content_type:
            raise TypesMixed(str(name), self._open.content_type, content_type)
        values, rows = group.column("value"), group.column("row")
        if is_json(content_type):
            yield from self._take_json(self._open, values, rows)
        else:
            yield from self._take_each(self._open, values, rows)

    def _name(self, group: Any) -> StreamName:
        if not self._columns.has_stream:
            assert self._options.stream is not None
            return StreamName(self._options.bucket, self._options.stream)
        bucket = self._options.bucket
        if self._columns.has_bucket:
            bucket = group.column("bucket")[0].as_py()
        return StreamName(bucket, group.column("stream")[0].as_py())

    def _content_type(self, name: str, group: Any) -> str:
        if not self._columns.has_content_type:
            return self._options.content_type
        found = [
            kind or self._options.content_type
            for kind in pc.unique(group.column("content_type")).to_pylist()
        ]
        for other in found[1:]:
            if other != found[0]:
                raise TypesMixed(name, found[0], other)
        return found[0]

    def _take_json(self, stream: _OpenStream, values: Any, rows: Any) -> Iterator[RowChunk]:
        # Each value has a comma or a bracket.
        sizes = pc.binary_length(values).to_numpy() + 1
        self._check_sizes(stream, sizes, rows)
        size = int(sizes.sum())
        if not stream.is_split and stream.size + size <= self._limit:
            stream.parts.append((values, rows))
            stream.size += size
            return
        if not stream.is_split:
            yield from self._start_splitting(stream)
        yield from self._split(stream, values, rows)

    def _start_splitting(self, stream: _OpenStream) -> Iterator[RowChunk]:
        if not self._is_ordered:
            raise OrderUnknown(str(stream.name), stream.content_type, self._limit)
        parts, stream.parts, stream.size, stream.is_split = stream.parts, [], 0, True
        for values, rows in parts:
            yield from self._split(stream, values, rows)

    def _split(self, stream: _OpenStream, values: Any, rows: Any) -> Iterator[RowChunk]:
        """Fill requests, each with as many rows as fit, at least one."""
        ends = np.cumsum(pc.binary_length(values).to_numpy() + 1)
        start = before = 0
        while start < len(ends):
            room = self._chunk_bytes - stream.size
            end = max(start, int(np.searchsorted(ends, before + room, "right")))
            if end == start and not stream.parts:
                end += 1
            if end > start:
                count = end - start
                stream.parts.append((values.slice(start, count), rows.slice(start, count)))
                stream.size += int(ends[end - 1]) - before
                start, before = end, int(ends[end - 1])
            if end < len(ends):
                yield self._chunk(stream)

    def _take_each(self, stream: _OpenStream, values: Any, rows: Any) -> Iterator[RowChunk]:
        self._check_sizes(stream, pc.binary_length(values).to_numpy(), rows)
        for at in range(len(values)):
            if stream.parts:
                if not self._is_ordered:
                    raise OrderUnknown(str(stream.name), stream.content_type, 0)
                yield self._chunk(stream)
            stream.parts.append((values.slice(at, 1), rows.slice(at, 1)))

    def _check_sizes(self, stream: _OpenStream, sizes: Any, rows: Any) -> None:
        """Check that each row fits in a request."""
        limit = self._options.max_request_bytes
        too_large = np.flatnonzero(sizes > limit)
        if too_large.size:
            at = int(too_large[0])
            where = str(stream.name), self._partition, rows[at].as_py()
            raise ValueTooLarge(*where, int(sizes[at]), limit)

    def _chunk(self, stream: _OpenStream) -> RowChunk:
        values, rows = zip(*stream.parts, strict=True)
        chunk = RowChunk(
            stream.name,
            stream.content_type,
            stream.seq,
            pa.concat_arrays(values) if len(values) > 1 else values[0],
            pa.concat_arrays(rows) if len(rows) > 1 else rows[0],
        )
        stream.seq, stream.size, stream.parts = stream.seq + 1, 0, []
        return chunk

    def _finish(self) -> Iterator[RowChunk]:
        stream, self._open = self._open, None
        if stream is None or not stream.parts:
            return
        if not stream.is_split and is_json(stream.content_type) and _has_many_messages(stream):
            yield from self._start_splitting(stream)
        yield self._chunk(stream)


def _has_many_messages(stream: _OpenStream) -> bool:
    """Whether a Tailrace server would reject the array."""
    return sum(len(values) for values, _ in stream.parts) > JSON_MESSAGES_MAX
