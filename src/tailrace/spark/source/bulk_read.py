"""
A task's reads from a Tailrace server, which returns many ranges as Arrow record batches.

If the beginning of a range is gone, reading continues from the earliest message that is retained,
where `failOnDataLoss` allows it; with `bootstrap` the snapshot comes first. The rows of a stream
come in order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from tailrace.client import Client, NotFound, StreamName
from tailrace.protocol.offset import parse_offset
from tailrace.spark.connection import connect, stream_of
from tailrace.spark.options import ReadOptions
from tailrace.spark.rows import Range, RangeError, read_rows
from tailrace.spark.source.errors import (
    MessagesGone,
    SourceFailed,
    StreamGone,
    StreamReplaced,
    report_loss,
)
from tailrace.spark.source.offset_ranges import OffsetRange

__all__ = ["RowBuilder", "read_bulk"]


class RowBuilder(Protocol):
    """Makes rows of the DataFrame from rows of a server."""

    wire: list[str]

    def rows(self, batch: pa.RecordBatch, streams: pa.Array) -> pa.RecordBatch: ...

    def row(self, stream: str, **values: object) -> pa.RecordBatch: ...


def read_bulk(
    options: ReadOptions, builder: RowBuilder, ranges: Sequence[OffsetRange]
) -> Iterator[pa.RecordBatch]:
    """
    The rows of some ranges.

    Raises:
        DataLost: Messages are missing, and `failOnDataLoss` is true.
        SourceFailed: They cannot be read.
    """
    with connect(options) as client:
        yield from _BulkReader(client, options, builder).batches(ranges)


@dataclass(frozen=True)
class _BulkReader:
    _client: Client
    _options: ReadOptions
    _builder: RowBuilder

    def batches(self, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        while ranges:
            again: list[OffsetRange] = []
            streams = pa.array([each.stream for each in ranges], pa.string())
            wanted = [
                Range(StreamName(self._options.bucket, each.stream), each.start, each.end)
                for each in ranges
            ]
            for found in read_rows(self._client, wanted, self._builder.wire):
                if isinstance(found, RangeError):
                    yield from self._on_error(ranges[found.index], found, again)
                else:
                    yield self._builder.rows(found, streams)
            ranges = again

    def _on_error(
        self, failed: OffsetRange, error: RangeError, again: list[OffsetRange]
    ) -> Iterator[pa.RecordBatch]:
        if error.status == 404 or error.code == "stream-gone":
            report_loss(self._options, StreamGone(failed.stream, failed.start))
        elif error.status == 410:
            yield from self._on_gone(failed, error, again)
        elif error.code in ("offset-beyond-tail", "offset-misaligned"):
            report_loss(self._options, StreamReplaced(failed.stream, failed.start))
        else:
            raise SourceFailed(failed.stream, error.detail)

    def _on_gone(
        self, failed: OffsetRange, error: RangeError, again: list[OffsetRange]
    ) -> Iterator[pa.RecordBatch]:
        """410: a snapshot covers the beginning of the range, or all of it."""
        earliest = error.offset
        if self._options.bootstrap:
            try:
                snapshot = stream_of(self._client, self._options.bucket, failed.stream).snapshot()
            except NotFound:
                report_loss(self._options, StreamGone(failed.stream, failed.start))
                return
            earliest = snapshot.offset
            yield self._builder.row(
                failed.stream,
                offset=snapshot.offset,
                next_offset=snapshot.offset,
                message=parse_offset(snapshot.offset).message,
                content_type=snapshot.content_type,
                value=snapshot.data,
                is_snapshot=True,
            )
        else:
            report_loss(self._options, MessagesGone(failed.stream, failed.start))
        if earliest is not None and earliest < failed.end:
            again.append(replace(failed, start=earliest))
