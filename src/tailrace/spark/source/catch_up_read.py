"""
A task's reads from any other server of the protocol, by ordinary catch-up reads.

Such a server has no bounded reads, and only the order of its offsets is known. A response may go
beyond the end of a range. Then the stream is read again from that end, and the number of elements
found there is removed from the end of the first response. History does not change, so counting
is enough; if the stream grows meanwhile, it takes a few more requests (`_count_beyond`).

A message of a JSON stream is an element. Other streams have no message boundaries on such a
server: a row is the content of one response.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from tailrace.client import Chunk, NotFound, OffsetGone, Stream
from tailrace.protocol.content_type import is_json
from tailrace.protocol.json_mode import split_array
from tailrace.spark.connection import connect, stream_of
from tailrace.spark.options import ReadOptions
from tailrace.spark.source.bulk_read import RowBuilder
from tailrace.spark.source.errors import MessagesGone, SourceFailed, StreamGone, report_loss
from tailrace.spark.source.offset_ranges import OffsetRange

__all__ = ["read_catch_up"]

TRIES_MAX: Final = 200
"""The number of reads of a growing stream before giving up."""


def read_catch_up(
    options: ReadOptions, builder: RowBuilder, ranges: Sequence[OffsetRange]
) -> Iterator[pa.RecordBatch]:
    """
    The rows of some ranges of another server; `message` and `time` are null.

    Raises:
        DataLost: Messages are missing, and `failOnDataLoss` is true.
        SourceFailed: They cannot be read.
    """
    with connect(options) as client:
        for each in ranges:
            stream = stream_of(client, options.bucket, each.stream)
            try:
                yield from _CatchUpReader(stream, each).batches(builder)
            except OffsetGone:
                report_loss(options, MessagesGone(each.stream, each.start))
            except NotFound:
                report_loss(options, StreamGone(each.stream, each.start))


class _CatchUpReader:
    """Reads one range."""

    def __init__(self, stream: Stream, wanted: OffsetRange) -> None:
        self._stream = stream
        self._range = wanted
        self._content_type = stream.head().content_type
        self._is_json = is_json(self._content_type)

    def batches(self, builder: RowBuilder) -> Iterator[pa.RecordBatch]:
        start, end = self._range.start, self._range.end
        for chunk in self._stream.read(start):
            if not chunk.data and chunk.next_offset == end:
                return
            units = self._units(chunk)
            is_beyond = chunk.next_offset > end
            if is_beyond:
                units = units[: len(units) - self._count_beyond(chunk.next_offset)]
            yield from self._rows(builder, start, min(chunk.next_offset, end), units)
            if is_beyond or chunk.next_offset == end:
                return
            start = chunk.next_offset
        raise SourceFailed(self._range.stream, f"it ended before {end}, its former tail")

    def _units(self, chunk: Chunk) -> "Sequence[bytes | msgspec.Raw] | bytes":
        """Units that can be counted: elements, or bytes."""
        if not self._is_json:
            return chunk.data
        try:
            return split_array(chunk.data)
        except msgspec.DecodeError as error:
            reason = f"a response is not a JSON array: {error}"
            raise SourceFailed(self._range.stream, reason) from None

    def _count_beyond(self, until: str) -> int:
        """
        The number of elements, or bytes, between the end of the range and a later offset.

        A response extends to the current tail, and the stream may grow between two of them. So the
        stream is read from both offsets in turn, until two successive reads end at the same
        offset: the difference of their counts is the number of units between the two.
        """
        start, other = self._range.end, until
        bound, known = until, 0
        for _ in range(TRIES_MAX):
            count, reached = self._count(start, bound)
            if reached == bound:
                return abs(count - known)
            # A server may return data that its next responses do not have yet: try again.
            if reached > bound:
                bound, known = reached, count
                start, other = other, start
        raise SourceFailed(
            self._range.stream,
            "it grows faster than this server responds, and cannot be read to an exact end",
        )

    def _count(self, start: str, bound: str) -> tuple[int, str]:
        """The number of units from an offset to at least a later one, and the offset reached."""
        count, reached = 0, start
        for chunk in self._stream.read(start):
            count += len(self._units(chunk)) if chunk.data else 0
            reached = chunk.next_offset
            if reached >= bound:
                break
        return count, reached

    def _rows(
        self,
        builder: RowBuilder,
        start: str,
        until: str,
        units: "Sequence[bytes | msgspec.Raw] | bytes",
    ) -> Iterator[pa.RecordBatch]:
        stream = self._range.stream
        if isinstance(units, bytes):
            if units:
                yield builder.row(
                    stream,
                    offset=start,
                    next_offset=until,
                    content_type=self._content_type,
                    value=units,
                )
            return
        # A position inside a response is its offset and a number, as the client resumes from.
        offsets = [start, *(f"{start},{at}" for at in range(1, len(units) + 1))]
        count = len(units)
        batch = pa.record_batch(
            {
                "range": pa.array([0] * count, pa.int32()),
                "message": pa.nulls(count, pa.int64()),
                "offset": pa.array(offsets[:-1], pa.string()),
                "next_offset": pa.array(offsets[1:], pa.string()),
                "time": pa.nulls(count, pa.timestamp("ms", tz="UTC")),
                "content_type": pa.repeat(pa.scalar(self._content_type), count),
                "value": pa.array([bytes(unit) for unit in units], pa.binary()),
            }
        )
        yield builder.rows(batch, pa.array([stream], pa.string()))
