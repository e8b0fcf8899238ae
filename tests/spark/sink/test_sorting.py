"""Rows in one order: whatever order they came in, and however little memory there is."""

import math
import random
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.spark.sink import sorting
from tailrace.spark.sink.sorting import ExternalSort

Row = tuple[str, float | None, bytes]

SCHEMA = pa.schema(
    [("stream", pa.large_string()), ("order0", pa.float64()), ("value", pa.large_binary())]
)
KEYS = ("stream", "order0", "value")
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "a\0", "ä", "𝄞", "ￃ"]) | st.text(max_size=3),
        st.none() | st.floats(width=32),
        st.binary(max_size=12),
    ),
    max_size=80,
)


def batches(rows: Sequence[Row], size: int) -> list[Any]:
    return [
        pa.RecordBatch.from_arrays(
            [
                pa.array(column, kind)
                for column, kind in zip(
                    zip(*rows[at : at + size], strict=True), SCHEMA.types, strict=True
                )
            ],
            schema=SCHEMA,
        )
        for at in range(0, len(rows), size)
    ]


def in_order(rows: Sequence[Row], size: int, buffer_bytes: int) -> tuple[list[Row], int]:
    with closing(ExternalSort(KEYS, buffer_bytes)) as order:
        for batch in batches(rows, size):
            order.add(batch)
        found = [tuple(row.values()) for batch in order.sorted() for row in batch.to_pylist()]
        return found, order.spilled


def comparable(row: Row) -> tuple[Any, ...]:
    """As Arrow orders them: numbers, then NaN, then null; texts as their bytes."""
    stream, number, value = row
    if number is None:
        rank: tuple[int, float] = (2, 0.0)
    else:
        rank = (1, 0.0) if math.isnan(number) else (0, number)
    return stream.encode(), rank, value


@settings(deadline=None)
@given(rows=ROWS, size=st.integers(1, 30), buffer_bytes=st.integers(1, 2000), seed=st.randoms())
def test_the_order_equals_a_naive_sort(
    rows: list[Row], size: int, buffer_bytes: int, seed: random.Random
) -> None:
    """
    Goal: two attempts that get the same rows in different orders hand out the same sequence.

    Method: sort in Python; compare, for two orders of arrival, buffers from nothing to all.
    """
    again = list(rows)
    seed.shuffle(again)
    expected = [comparable(row) for row in sorted(rows, key=comparable)]
    for arrival, memory in ((rows, buffer_bytes), (again, buffer_bytes), (again, 1 << 20)):
        found, _ = in_order(arrival, size, memory)
        assert [comparable(row) for row in found] == expected


def test_runs_are_merged_in_several_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More runs than may be merged at once become fewer; each head is small."""
    monkeypatch.setattr(sorting, "RUNS_MAX", 3)
    monkeypatch.setattr(sorting, "HEAD_BYTES", 256)
    rng = random.Random(5)
    rows = [
        (f"s{rng.randrange(9)}", float(rng.randrange(50)), rng.randbytes(8)) for _ in range(3000)
    ]
    found, spilled = in_order(rows, 40, 2000)
    assert found == sorted(rows, key=comparable)
    # 3,000 rows in runs of about 100 are 30 runs: no more than two of each level are left.
    assert 1 <= spilled <= 8


def test_rows_beyond_the_buffer_go_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Goal: memory does not grow with the rows. Method: look at what is gathered after each batch,
    and at what Arrow holds while runs are merged.
    """
    monkeypatch.setattr(sorting, "HEAD_BYTES", 4 << 10)
    before = pa.total_allocated_bytes()
    count, size = 400, 50
    with closing(ExternalSort(KEYS, 64 << 10)) as order:
        for at in range(count):
            rows = [(f"s{(at * size + n) * 7919 % 1000}", 0.0, b"x" * 200) for n in range(size)]
            order.add(batches(rows, size)[0])
            assert pa.total_allocated_bytes() - before < 512 << 10
        merged = 0
        for batch in order.sorted():
            merged += batch.num_rows
            assert pa.total_allocated_bytes() - before < 2 << 20
    # All of it is more than 4 MiB.
    assert merged == count * size


def test_no_rows_sort_to_no_rows() -> None:
    assert in_order([], 5, 100) == ([], 0)


def test_files_are_removed_on_close_and_on_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A file never has a name: whatever happens to the process, none is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with closing(ExternalSort(KEYS, 100)) as order:
        for batch in batches([("s", 1.0, b"x" * 50)] * 20, 2):
            order.add(batch)
        assert order.spilled
        assert list(tmp_path.iterdir()) == []
    with closing(ExternalSort(KEYS, 1)) as order, pytest.raises(pa.ArrowException):
        order.add(pa.RecordBatch.from_pydict({"stream": pa.array(["a"])}))
    assert list(tmp_path.iterdir()) == []
