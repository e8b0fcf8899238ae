"""A report against a naive reading of the same streams."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from tailrace.client import Client, NotFound
from tailrace.spark.jobs import report as job
from tailrace.spark.jobs.report import report
from tailrace.spark.jobs.report_values import Report, Summary
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "orders"
SIZES = {"a": 900, "b": 40, "c": 1}


@pytest.fixture(scope="module")
def values() -> dict[str, list[bytes]]:
    chance = random.Random(5)
    return {
        name: [
            json.dumps({"id": number % 7, "text": "x" * chance.randint(0, 300)}).encode()
            for number in range(count)
        ]
        for name, count in SIZES.items()
    }


@pytest.fixture
def filled(client: Client, values: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
    """Streams of JSON by two producers, one of binary, one that is empty, one with a snapshot."""
    bucket = client.bucket(BUCKET)
    bucket.create()
    for place, (name, messages) in enumerate(values.items()):
        stream = bucket.stream(name)
        stream.create("application/json")
        with stream.producer(f"writer-{place % 2}", batch_count_max=50) as producer:
            for message in messages:
                producer.append(message)
    bucket.stream("binary").create("application/octet-stream", body=b"\xff" * 10)
    bucket.stream("empty").create("text/plain", closed=True)
    folded = bucket.stream("folded")
    folded.create("application/json")
    folded.append_json(*range(100))
    folded.publish_snapshot(b"[1]", folded.head().next_offset, "application/json")
    folded.append_json(7)
    return values


def of(found: Report, name: str) -> Summary:
    (summary,) = [each for each in found.streams if each.stream == name]
    return summary


def test_a_report_counts_what_a_reader_would(
    spark: SparkSession,
    server: ServerProcess,
    filled: dict[str, list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where a stream is split over several tasks."""
    monkeypatch.setattr(job, "PARTITION_BYTES", 20_000)
    found = report(spark, url=server.url, buckets=[BUCKET], key="/id")
    for name, messages in filled.items():
        summary = of(found, name)
        sizes = sorted(map(len, messages))
        assert (summary.messages, summary.bytes) == (len(messages), sum(sizes))
        assert summary.sizes.max == sizes[-1]
        median = sizes[(len(sizes) + 1) // 2 - 1]
        assert median <= summary.sizes.p50 <= median * 1.01
        assert summary.producers == 1
        assert sum(growth.messages for growth in summary.growth) == len(messages)
        last = {json.loads(message)["id"]: len(message) for message in messages}
        assert summary.fold is not None
        assert summary.fold.keys == len(last)
        assert summary.fold.bytes == sum(last.values())
    (whole,) = found.buckets
    assert whole.messages == sum(SIZES.values()) + 2
    assert (whole.streams, whole.closed, whole.producers) == (6, 1, 2)
    assert whole.busiest == {"writer-0": 901, "writer-1": 40}


def test_what_a_snapshot_saved_and_what_has_no_key(
    spark: SparkSession, server: ServerProcess, filled: dict[str, list[bytes]]
) -> None:
    found = report(spark, url=server.url, buckets=[BUCKET], pattern="[bef]*", key="/id")
    assert [each.stream for each in found.streams] == ["b", "binary", "empty", "folded"]
    folded, binary, empty = (of(found, name) for name in ("folded", "binary", "empty"))
    assert folded.messages == 1
    assert (folded.compaction.messages, folded.compaction.snapshot_bytes) == (100, 3)
    assert folded.compaction.saved == folded.compaction.bytes - 3 > 200
    assert binary.fold is not None and (binary.fold.keys, binary.fold.saved) == (0, 0)
    assert (empty.messages, empty.rate_per_s, empty.growth) == (0, None, [])


def test_a_bucket_that_is_not_there(spark: SparkSession, server: ServerProcess) -> None:
    with pytest.raises(NotFound):
        report(spark, url=server.url, buckets=["no-such-bucket"])


def test_a_bucket_without_streams(
    spark: SparkSession, server: ServerProcess, client: Client
) -> None:
    client.bucket(BUCKET).create()
    found = report(spark, url=server.url, buckets=[BUCKET])
    assert (found.streams, found.buckets[0].messages) == ([], 0)
