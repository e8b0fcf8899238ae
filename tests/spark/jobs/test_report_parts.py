"""Measuring in pieces adds up to what a naive count of all messages says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.spark.folds.base import FoldInvalid
from tailrace.spark.jobs import report_parts
from tailrace.spark.jobs.report_parts import PARTS, Meter, keys_at
from tailrace.spark.rows import RangeError

HOUR_MS = 3_600_000
SCHEMA = pa.schema(
    [
        ("range", pa.int32()),
        ("size", pa.int32()),
        ("time", pa.timestamp("ms", "UTC")),
        ("producer", pa.string()),
        ("message", pa.int64()),
        ("value", pa.binary()),
    ]
)
MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 3 * HOUR_MS),
        st.sampled_from([None, "a", "b"]),
        st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["x", "1"])),
        st.integers(0, 5000),
    ),
    max_size=60,
)


def batch_of(messages: Iterable[tuple[int, int, str | None, object, int]], start: int) -> Any:
    rows = []
    for number, (range_, time, producer, key, padding) in enumerate(messages, start):
        text = {"pad": "x" * padding} if key is None else {"id": key, "pad": "x" * padding}
        value = json.dumps(text).encode()
        rows.append((range_, len(value), time, producer, number, value))
    return as_batch(rows)


def as_batch(rows: list[tuple[Any, ...]]) -> Any:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def added(parts: Iterable[Any]) -> dict[str, Counter[Any]]:
    """Messages by what they have in common; of a key, the bytes of its last message."""
    found: dict[str, Counter[Any]] = {}
    last: dict[Any, tuple[int, int]] = {}
    for part in parts:
        assert part.schema == PARTS
        for row in part.to_pylist():
            if row["kind"] == "key":
                at = (row["place"], row["name"])
                last[at] = max(last.get(at, (-1, 0)), (row["most"], row["bytes"]))
            else:
                in_common = (row["place"], row["number"], row["name"])
                found.setdefault(row["kind"], Counter())[in_common] += row["messages"]
    found["key"] = Counter({at: size for at, (_, size) in last.items()})
    return found


@settings(deadline=None)
@given(messages=MESSAGES, cut=st.integers(0, 60))
def test_whatever_the_pieces_the_parts_add_up_to_the_same(
    messages: list[tuple[int, int, str | None, object, int]], cut: int
) -> None:
    """Goal: tasks may measure a stream in pieces. Method: against counts by plain Python."""
    meter = Meter([7, 8, 9], [0, 1, 1], HOUR_MS, keys_at("/id"))
    parts = []
    for piece, start in ((messages[:cut], 0), (messages[cut:], cut)):
        parts += list(meter.take(batch_of(piece, start)))
    found = added([*parts, *meter.finish()])
    assert sum(found.get("size", Counter()).values()) == len(messages)
    periods = Counter((7 + at, time // HOUR_MS * HOUR_MS, None) for at, time, *_ in messages)
    assert found.get("period", Counter()) == periods
    producers = Counter((7 + at, min(at, 1), who) for at, _, who, *_ in messages if who)
    assert found.get("producer", Counter()) == producers
    keyless = Counter((7 + at, 0, None) for at, _, _, key, _ in messages if key is None)
    assert found.get("keyless", Counter()) == keyless
    last = {(7 + at, repr(key)): len(json.dumps({"id": key, "pad": "x" * pad}))
            for at, _, _, key, pad in messages if key is not None}  # fmt: skip
    assert found["key"] == last


@given(sizes=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50))
def test_a_bin_is_less_than_a_hundredth_of_its_sizes(sizes: list[int]) -> None:
    batch = as_batch([(0, size, 0, None, 0, b"") for size in sizes])
    meter = Meter([0], [0], HOUR_MS)
    parts = [*meter.take(batch), *meter.finish()]
    bins = [row for part in parts for row in part.to_pylist() if row["kind"] == "size"]
    assert sum(row["bytes"] for row in bins) == sum(sizes)
    assert max(row["most"] for row in bins) == max(sizes)
    for row in bins:
        assert row["number"] <= row["least"] <= row["most"]
        assert row["most"] - row["number"] <= row["number"] / 100


def test_parts_are_handed_on_before_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_parts, "_ROWS_MAX", 10)
    meter = Meter([0], [0], HOUR_MS)
    early = []
    for number in range(20):
        early += list(meter.take(batch_of([(0, number * HOUR_MS, None, None, 1)], number)))
    assert early
    found = added([*early, *meter.finish()])
    assert sum(found["period"].values()) == 20 and len(found["period"]) == 20


def test_a_range_that_cannot_be_read_is_a_part() -> None:
    meter = Meter([3, 4], [0, 0], HOUR_MS)
    list(meter.take(RangeError(1, 404, "stream-not-found", "there is none", None)))
    (part,) = meter.finish()
    (row,) = part.to_pylist()
    assert (row["place"], row["kind"], row["number"]) == (4, "error", 404)
    assert row["name"] == "stream-not-found: there is none"


def test_keys_of_messages_that_are_no_json() -> None:
    assert keys_at("id")([b'{"id": 1}', b"\xff", b"[]", b'{"id": null}']) == ["1", None, None, None]
    with pytest.raises(FoldInvalid):
        keys_at("/a//b")
