"""
What a task does: read its spans from a Tailrace server, as record batches.

A span whose beginning is gone is read on from where the server still has it, if that is allowed;
with `bootstrap` the snapshot that covers it comes first. Every stream's rows come in order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from tailrace.client import Client, NotFound, StreamName
from tailrace.protocol.offset import parse_offset
from tailrace.spark.options import ReadOptions
from tailrace.spark.rows import Range, RangeError, read_rows
from tailrace.spark.source.catalog import connect, stream_of
from tailrace.spark.source.errors import MessagesGone, SourceFailed, StreamGone, StreamReplaced
from tailrace.spark.source.offset_ranges import Span

__all__ = ["Builder", "Reading", "read_spans"]


class Builder(Protocol):
    """Makes rows of Spark out of rows of a server."""

    wire: list[str]

    def rows(self, batch: pa.RecordBatch, streams: pa.Array) -> pa.RecordBatch: ...

    def row(self, stream: str, **values: object) -> pa.RecordBatch: ...


def read_spans(
    options: ReadOptions, builder: Builder, spans: Sequence[Span]
) -> Iterator[pa.RecordBatch]:
    """
    The rows of some spans.

    Raises:
        DataLost: Some of them are gone, and that is not allowed.
        SourceFailed: They cannot be read.
    """
    with connect(options) as client:
        yield from Reading(client, options, builder).batches(spans)


class Reading:
    """One task's work."""

    def __init__(self, client: Client, options: ReadOptions, builder: Builder) -> None:
        self._client = client
        self._options = options
        self._builder = builder

    def batches(self, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        left = list(spans)
        while left:
            again: list[Span] = []
            streams = pa.array([span.stream for span in left], pa.string())
            for found in read_rows(self._client, self._ranges(left), self._builder.wire):
                if not isinstance(found, RangeError):
                    yield self._builder.rows(found, streams)
                    continue
                yield from self._on_error(left[found.index], found, again)
            left = again

    def _ranges(self, spans: Sequence[Span]) -> list[Range]:
        bucket = self._options.bucket
        return [Range(StreamName(bucket, span.stream), span.start, span.end) for span in spans]

    def _on_error(
        self, span: Span, error: RangeError, again: list[Span]
    ) -> Iterator[pa.RecordBatch]:
        if error.status == 410:
            yield from self._on_gone(span, error, again)
        elif error.status == 404:
            if self._options.fail_on_data_loss:
                raise StreamGone(span.stream, span.start)
        elif error.code in ("offset-beyond-tail", "offset-misaligned"):
            if self._options.fail_on_data_loss:
                raise StreamReplaced(span.stream, span.start)
        else:
            raise SourceFailed(span.stream, error.detail)

    def _on_gone(
        self, span: Span, error: RangeError, again: list[Span]
    ) -> Iterator[pa.RecordBatch]:
        """410: a snapshot covers the beginning of the span, or all of it."""
        earliest = error.offset
        if self._options.bootstrap:
            snapshot = self._snapshot(span)
            if snapshot is None:
                return
            yield snapshot[1]
            earliest = snapshot[0]
        elif self._options.fail_on_data_loss:
            raise MessagesGone(span.stream, span.start)
        if earliest is not None and earliest < span.end:
            again.append(replace(span, start=earliest))

    def _snapshot(self, span: Span) -> tuple[str, pa.RecordBatch] | None:
        try:
            snapshot = stream_of(self._client, self._options.bucket, span.stream).snapshot()
        except NotFound:
            if self._options.fail_on_data_loss:
                raise StreamGone(span.stream, span.start) from None
            return None
        row = self._builder.row(
            span.stream,
            offset=snapshot.offset,
            next_offset=snapshot.offset,
            message=parse_offset(snapshot.offset).message,
            content_type=snapshot.content_type,
            value=snapshot.data,
            is_snapshot=True,
        )
        return snapshot.offset, row
