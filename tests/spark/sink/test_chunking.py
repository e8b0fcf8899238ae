"""Ordered rows into numbered requests: the same at every attempt, and only what is one message."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client import ProducerClaim, StreamName
from tailrace.client.errors import Refused, refusal
from tailrace.spark.options import WriteOptions
from tailrace.spark.sink import errors as sink_errors
from tailrace.spark.sink.append_requests import AppendRequest, sink_error
from tailrace.spark.sink.bodies import encode_body
from tailrace.spark.sink.chunking import CHUNK_BYTES, RowChunk, RowChunker
from tailrace.spark.sink.columns import SinkColumns
from tailrace.spark.sink.errors import (
    OrderUnknown,
    SinkError,
    SinkFenced,
    SinkGap,
    SinkRefused,
    SinkUnauthorized,
    TypeConflict,
    TypesMixed,
    ValueInvalid,
    ValueTooLarge,
)
from tests.support.garbage import garbage_collection_disabled

SHAPE = SinkColumns(
    has_bucket=False, has_stream=True, has_content_type=False, order_by=("o",), stable=False
)

UNORDERED = replace(SHAPE, order_by=())
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.binary(min_size=1, max_size=40)), max_size=60)


def options(**given: Any) -> WriteOptions:
    return WriteOptions(**{"url": "http://127.0.0.1:1", "headers": {}, "bucket": "buck", **given})


def batch(rows: list[tuple[str, bytes]], first: int = 0, **more: Any) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "stream": pa.array([stream for stream, _ in rows], pa.large_string()),
            "row": pa.array(range(first, first + len(rows)), pa.int64()),
            "value": pa.array([value for _, value in rows], pa.large_binary()),
            **more,
        }
    )


def divided(rows: list[tuple[str, bytes]], size: int) -> Iterator[Any]:
    return (batch(rows[at : at + size], at) for at in range(0, len(rows), size))


def plain(chunks: Iterator[RowChunk]) -> list[tuple[str, int, list[bytes], list[int]]]:
    return [
        (chunk.name.stream, chunk.seq, chunk.values.to_pylist(), chunk.rows.to_pylist())
        for chunk in chunks
    ]


@settings(deadline=None)
@given(
    rows=ROWS,
    size=st.integers(1, 20),
    limit=st.integers(41, 120),
    chunk_bytes=st.integers(1, 120),
    content_type=st.sampled_from(["application/json", "text/plain"]),
)
def test_requests_are_a_function_of_the_ordered_rows(
    rows: list[tuple[str, bytes]], size: int, limit: int, chunk_bytes: int, content_type: str
) -> None:
    """
    Goal: how rows are divided into batches changes nothing; nothing is lost, doubled or moved.

    Method: cut the same rows once whole and once in pieces, and put the requests together again.
    """
    rows.sort(key=lambda row: row[0])
    given_options = options(max_request_bytes=limit, content_type=content_type)
    found, whole = (
        plain(RowChunker(given_options, SHAPE, 0, chunk_bytes).chunks(divided(rows, step)))
        for step in (size, 1000)
    )
    assert found == whole
    assert [(name, value) for name, _, values, _ in found for value in values] == rows
    assert [row for _, _, _, numbers in found for row in numbers] == list(range(len(rows)))
    for stream in "abc":
        mine = [(seq, values) for name, seq, values, _ in found if name == stream]
        assert [seq for seq, _ in mine] == list(range(len(mine)))
        sizes = [sum(len(value) + 1 for value in values) for _, values in mine]
        if content_type == "text/plain":
            assert all(len(values) == 1 for _, values in mine)
        elif sum(sizes) <= limit:
            # One request, as where nothing orders the rows.
            assert len(mine) <= 1
        else:
            most = min(limit, chunk_bytes)
            assert all(
                total <= most or len(values) == 1
                for total, (_, values) in zip(sizes, mine, strict=True)
            )
            # As few as can be: the first row of a request did not fit into the one before.
            firsts = [len(values[0]) + 1 for _, values in mine[1:]]
            assert all(a + b > most for a, b in zip(sizes, firsts, strict=False))


def test_a_row_larger_than_a_chunk_goes_alone() -> None:
    rows = [("a", b"1" * size) for size in (10, 2 * CHUNK_BYTES, 10, 10)]
    small = options(max_request_bytes=2 * CHUNK_BYTES + 1)
    found = plain(RowChunker(small, SHAPE, 0).chunks(divided(rows, 9)))
    assert [len(values) for _, _, values, _ in found] == [1, 1, 2]


def test_a_request_has_at_most_as_many_messages_as_a_server_accepts() -> None:
    """Goal: small values; they are cut, or, if nothing orders them, an error, before a 400."""
    rows = [("a", b"0")] * 1_000_001
    found = plain(RowChunker(options(), SHAPE, 0).chunks(divided(rows, 100_000)))
    assert sum(len(values) for _, _, values, _ in found) == len(rows)
    assert [seq for _, seq, _, _ in found] == [0, 1]
    with pytest.raises(OrderUnknown, match="million messages"):
        plain(RowChunker(options(), UNORDERED, 0).chunks(divided(rows, 100_000)))


def test_a_row_larger_than_a_request_is_an_error() -> None:
    with pytest.raises(ValueTooLarge) as caught:
        plain(
            RowChunker(options(max_request_bytes=9), SHAPE, 7).chunks(
                divided([("a", b"1"), ("a", b"1" * 10)], 1)
            )
        )
    assert (caught.value.stream, caught.value.partition, caught.value.row) == ("buck/a", 7, 1)


def test_unordered_rows_go_in_one_request() -> None:
    rows = [("a", b"1"), ("a", b"2"), ("b", b"3")]
    found = plain(RowChunker(options(max_request_bytes=4), UNORDERED, 0).chunks(divided(rows, 1)))
    assert found == [("a", 0, [b"1", b"2"], [0, 1]), ("b", 0, [b"3"], [2])]
    with pytest.raises(OrderUnknown, match=r"orderBy.*stableInput=true.*more partitions"):
        plain(RowChunker(options(max_request_bytes=3), UNORDERED, 0).chunks(divided(rows, 1)))


def test_messages_of_other_types_need_an_order_as_soon_as_there_are_two() -> None:
    text = options(content_type="text/plain")
    assert plain(RowChunker(text, UNORDERED, 0).chunks(divided([("a", b"1"), ("b", b"2")], 9)))
    with pytest.raises(OrderUnknown, match="each message of 'text/plain' is a request"):
        plain(RowChunker(text, UNORDERED, 0).chunks(divided([("a", b"1"), ("a", b"2")], 1)))


@pytest.mark.parametrize("size", [1, 9])
def test_a_stream_has_one_content_type_in_a_batch(size: int) -> None:
    columns = SinkColumns(
        has_bucket=False, has_stream=True, has_content_type=True, order_by=(), stable=True
    )

    def typed(*types: str | None) -> Iterator[Any]:
        rows = [("a", b"1")] * len(types)
        whole = batch(rows, content_type=pa.array(types, pa.large_string()))
        return (whole.slice(at, size) for at in range(0, len(types), size))

    found = list(RowChunker(options(), columns, 0).chunks(typed(None, "application/json", None)))
    assert [chunk.content_type for chunk in found] == ["application/json"]
    with pytest.raises(TypesMixed, match=r"application/json.*text/plain"):
        list(RowChunker(options(), columns, 0).chunks(typed(None, "text/plain")))


# -- what is in a request -----------------------------------------------------------------------


def chunk_of(values: list[bytes], content_type: str = "application/json") -> RowChunk:
    rows = pa.array(range(10, 10 + len(values)), pa.int64())
    values = pa.array(values, pa.large_binary())
    return RowChunk(StreamName("buck", "s"), content_type, 0, values, rows)


def test_values_stay_as_they_are_inside_the_array() -> None:
    values = [b'{"a" : 1.0}', b"[]", b" null\n", b'"\xc3\xa4,"', b"[1,2]", b"-0.0e1"]
    assert encode_body(chunk_of(values), 0) == b"[%b]" % b",".join(values)


NOT_ONE_VALUE = {
    "empty": [b""],
    "white space": [b" "],
    "two values": [b"1,2"],
    "an array left and begun": [b"1],[2"],
    "halves that fit together": [b"[1", b"2]"],
    "as many values as rows": [b"1,[2", b"3]"],
    "a string over two rows": [b'"a', b'b"'],
    "not JSON": [b"{a:1}"],
    "cut off": [b'{"a":1'],
    "one after another": [b"{}{}"],
    "a comma behind": [b"1,"],
    "NaN": [b"NaN"],
    "a comment": [b"1/**/"],
    "not UTF-8": [b'"\xff"'],
    "a lone surrogate in bytes": [b'"\xed\xa0\x80"'],
    "a byte order mark": [b"\xef\xbb\xbf1"],
    "a NUL": [b"1\0"],
    "too deep": [b"[" * 100_000 + b"]" * 100_000],
}


@pytest.mark.parametrize("values", NOT_ONE_VALUE.values(), ids=NOT_ONE_VALUE.keys())
def test_a_value_that_is_not_one_json_value_is_refused_with_its_row(values: list[bytes]) -> None:
    with garbage_collection_disabled(), pytest.raises(ValueInvalid) as caught:
        encode_body(chunk_of([b"1", *values, b"2"]), 3)
    error = caught.value
    assert (error.stream, error.partition, error.row) == ("buck/s", 3, 11)
    assert "row 11 of partition 3" in str(error) and len(str(error)) < 400


def test_an_empty_message_is_refused() -> None:
    assert encode_body(chunk_of([b"\0"], "application/octet-stream"), 0) == b"\0"
    with pytest.raises(ValueInvalid, match="at least one byte"):
        encode_body(chunk_of([b""], "application/octet-stream"), 0)


# -- errors -------------------------------------------------------------------------------------

CLAIM = ProducerClaim("q/1", 7, 2)


@pytest.mark.parametrize(
    ("refused", "expected", "words"),
    [
        (refusal(401, "u", {}, b"who?"), SinkUnauthorized, "token and headers"),
        (refusal(403, "u", {}, b"no"), SinkUnauthorized, "not allowed"),
        (refusal(403, "u", {"producer-epoch": "9"}, b""), SinkFenced, "batch 9.*rolled back"),
        (refusal(409, "u", {"producer-expected-seq": "0"}, b""), SinkGap, "request 2 of batch 7"),
        (Refused(400, "u", "producer-epoch-start"), SinkGap, "request 2 of batch 7"),
        (refusal(409, "u", {"stream-closed": "true"}, b""), sink_errors.SinkClosed, "closed"),
        (refusal(413, "u", {}, b"big"), sink_errors.RequestTooLarge, "maxRequestBytes"),
        (refusal(404, "u", {}, b""), sink_errors.StreamMissing, "createStreams"),
        (refusal(400, "u", {}, b"bad"), SinkRefused, "400.*bad"),
        (refusal(409, "u", {}, b"other"), SinkRefused, "409.*other"),
        (
            refusal(
                409,
                "u",
                {"content-type": "application/problem+json"},
                b'{"code":"content-type-mismatch","detail":"it is text/plain"}',
            ),
            TypeConflict,
            "it is text/plain.*contentType",
        ),
    ],
)
def test_each_refusal_says_what_to_do(
    refused: Refused, expected: type[SinkError], words: str
) -> None:
    error = sink_error(
        AppendRequest(StreamName(None, "s"), "application/json", CLAIM, b"[1]"), refused
    )
    assert type(error) is expected
    with pytest.raises(expected, match=words):
        raise error
    assert "s" in str(error)


def test_temporary_errors_are_left_to_the_next_attempt() -> None:
    busy = refusal(503, "u", {}, b"")
    assert sink_error(AppendRequest(StreamName(None, "s"), "a/b", CLAIM, b"1"), busy) is busy


ERRORS: list[SinkError] = [
    sink_errors.BucketMissing("buck", "buck/s"),
    sink_errors.ColumnsInvalid("there is no column value"),
    sink_errors.InputTruncated(),
    sink_errors.OrderUnknown("s", "text/plain", 0),
    sink_errors.PartitionsUnstable("spark.setting"),
    sink_errors.RequestTooLarge("s", 5, "too large"),
    sink_errors.SinkClosed("s", "0_0"),
    sink_errors.SinkFenced("s", "q/0", 3, 4),
    sink_errors.SinkGap("s", "q/0", 3, 4),
    sink_errors.SinkRefused("s", 418, "teapot"),
    sink_errors.SinkUnauthorized("s", 401, ""),
    sink_errors.StreamMissing("s"),
    sink_errors.StreamVanished("s", 4),
    sink_errors.TargetInvalid(1, 2, "the column stream is null"),
    sink_errors.TypeConflict("s", "a/b", "c/d"),
    sink_errors.TypesMixed("s", "a/b", "c/d"),
    sink_errors.ValueInvalid("s", 1, 2, "no JSON", "'x'"),
    sink_errors.ValueTooLarge("s", 1, 2, 30, 20),
]
