"""
Reading from any other server of the protocol: answers to plain catch-up reads.

Such a server has no bounded reads, and its offsets say nothing but their order. An answer may thus
go beyond where a span ends. Then the same is read once more from that end: what comes from there
is, of what came before, the part to leave out. History never changes, so counting is enough; while
the stream grows, it takes a few answers more (`_beyond`).

A message of a JSON stream is an element. Of other streams such a server does not tell messages
apart: a row is what one answer brought.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec
import pyarrow as pa

from tailrace.client import Chunk, NotFound, OffsetGone, Stream
from tailrace.protocol.content_type import is_json
from tailrace.spark.options import ReadOptions
from tailrace.spark.source.bulk_read import Builder
from tailrace.spark.source.catalog import connect, stream_of
from tailrace.spark.source.errors import MessagesGone, SourceFailed, StreamGone
from tailrace.spark.source.offset_ranges import Span

__all__ = ["read_plain"]

TRIES_MAX: Final = 200
"""Of reading a stream that grows, before it is given up."""

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_plain(
    options: ReadOptions, builder: Builder, spans: Sequence[Span]
) -> Iterator[pa.RecordBatch]:
    """
    The rows of some spans of another server; `message` and `time` are null.

    Raises:
        DataLost: Some of them are gone, and that is not allowed.
        SourceFailed: They cannot be read.
    """
    with connect(options) as client:
        for span in spans:
            try:
                yield from _read(stream_of(client, options.bucket, span.stream), builder, span)
            except OffsetGone:
                if options.fail_on_data_loss:
                    raise MessagesGone(span.stream, span.start) from None
            except NotFound:
                if options.fail_on_data_loss:
                    raise StreamGone(span.stream, span.start) from None


def _read(stream: Stream, builder: Builder, span: Span) -> Iterator[pa.RecordBatch]:
    content_type = stream.head().content_type
    are_json = is_json(content_type)
    start = span.start
    for chunk in stream.read(span.start):
        if not chunk.data and chunk.next_offset == span.end:
            return
        units = _units(span, chunk, are_json)
        is_beyond = chunk.next_offset > span.end
        if is_beyond:
            units = units[: len(units) - _beyond(stream, span, chunk.next_offset, are_json)]
        until = min(chunk.next_offset, span.end)
        yield from _rows(builder, span, start, until, units, content_type, are_json=are_json)
        if is_beyond or chunk.next_offset == span.end:
            return
        start = chunk.next_offset
    raise SourceFailed(span.stream, f"it ended before {span.end}, where it once reached")


def _units(span: Span, chunk: Chunk, are_json: bool) -> "Sequence[bytes | msgspec.Raw] | bytes":
    """What can be counted: elements, or bytes."""
    if not are_json:
        return chunk.data
    try:
        return _split(chunk.data)
    except msgspec.DecodeError as error:
        raise SourceFailed(span.stream, f"an answer is no JSON array: {error}") from None


def _beyond(stream: Stream, span: Span, until: str, are_json: bool) -> int:
    """
    How many elements, or bytes, lie between the end of a span and an offset after it.

    Answers go as far as there is something, and the stream may grow between two of them. It is read
    from both places in turn, until two answers in a row end at the same offset: then what one has
    more than the other lies between the places.
    """
    place, other = span.end, until
    bound, known = until, 0
    for _ in range(TRIES_MAX):
        count, reached = _count(stream, span, place, bound, are_json)
        if reached == bound:
            return abs(count - known)
        # A server may hand out what its next answers do not have yet: ask again.
        if reached > bound:
            bound, known = reached, count
            place, other = other, place
    raise SourceFailed(
        span.stream, "it grows faster than this server answers, and cannot be read to an exact end"
    )


def _count(stream: Stream, span: Span, start: str, bound: str, are_json: bool) -> tuple[int, str]:
    """How many elements, or bytes, come from an offset up to a later one, and how far they go."""
    count, reached = 0, start
    for chunk in stream.read(start):
        count += len(_units(span, chunk, are_json)) if chunk.data else 0
        reached = chunk.next_offset
        if reached >= bound:
            break
    return count, reached


def _rows(
    builder: Builder,
    span: Span,
    start: str,
    until: str,
    units: "Sequence[bytes | msgspec.Raw] | bytes",
    content_type: str,
    *,
    are_json: bool,
) -> Iterator[pa.RecordBatch]:
    if not are_json:
        if units:
            value = bytes(units)  # type: ignore[arg-type]
            yield builder.row(
                span.stream, offset=start, next_offset=until, content_type=content_type,
                value=value,
            )  # fmt: skip
        return
    # A place inside an answer is its offset and a number, as the client resumes from.
    places = [start if at == 0 else f"{start},{at}" for at in range(len(units) + 1)]
    values = [bytes(unit) for unit in units]
    count = len(values)
    batch = pa.record_batch(
        {
            "range": pa.array([0] * count, pa.int32()),
            "message": pa.nulls(count, pa.int64()),
            "offset": pa.array(places[:count], pa.string()),
            "next_offset": pa.array(list(islice(places, 1, None)), pa.string()),
            "time": pa.nulls(count, pa.timestamp("ms", tz="UTC")),
            "content_type": pa.repeat(pa.scalar(content_type), count),
            "value": pa.array(values, pa.binary()),
        }
    )
    yield builder.rows(batch, pa.array([span.stream], pa.string()))
