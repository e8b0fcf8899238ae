"""`spark.readStream.format("tailrace")`: micro-batches over a real server, restarts and limits."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tailrace.client import Client
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow


class Table:
    """What a query wrote, batch by batch; a batch that comes again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.changed = threading.Condition()

    def write(self, frame: "DataFrame", batch: int) -> None:
        rows = frame.collect()
        with self.changed:
            self.batches[batch] = rows
            self.changed.notify_all()

    def values(self) -> dict[str, list[Any]]:
        """By stream, as they came; rows of one batch in the order of messages."""
        found: dict[str, list[Any]] = {}
        for batch in sorted(self.batches):
            for row in sorted(self.batches[batch], key=lambda row: (row.stream, row.message)):
                found.setdefault(row.stream, []).append(json.loads(bytes(row.value)))
        return found

    def wait_for(self, expected: Callable[[dict[str, list[Any]]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: expected(self.values()), 60), self.values()


Start = Callable[..., "StreamingQuery"]


@pytest.fixture
def start(spark: "SparkSession", server: ServerProcess, tmp_path: Path) -> Iterator[Start]:
    started = []

    def begin(
        table: Table, *, now: bool = False, checkpoint: str = "check", **options: str
    ) -> "StreamingQuery":
        frame = spark.readStream.format("tailrace").option("url", server.url).options(**options)
        writer = frame.load().writeStream.foreachBatch(table.write)
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        query = (writer.trigger(availableNow=True) if now else writer).start()
        started.append(query)
        if now:
            query.awaitTermination(100)
        return query

    yield begin
    for query in started:
        query.stop()


def create(client: Client, bucket: str, *streams: str) -> None:
    client.bucket(bucket).create()
    for stream in streams:
        client.bucket(bucket).stream(stream).create("application/json")


def test_rows_come_as_they_are_appended_and_new_streams_too(client: Client, start: Start) -> None:
    create(client, "live", "a")
    bucket, table = client.bucket("live"), Table()
    bucket.stream("a").append_json(1, 2)
    query = start(table, bucket="live")
    table.wait_for(lambda found: found == {"a": [1, 2]})
    bucket.stream("a").append_json(3)
    bucket.stream("new").create("application/json", body=b"[10,11]")
    table.wait_for(lambda found: found == {"a": [1, 2, 3], "new": [10, 11]})
    query.stop()


def test_a_restarted_query_continues(client: Client, start: Start) -> None:
    create(client, "again", "a", "b")
    bucket, table = client.bucket("again"), Table()
    for number in range(3):
        bucket.stream("a").append_json(number)
        bucket.stream("b").append_json(-number)
        start(table, now=True, bucket="again")
    assert table.values() == {"a": [0, 1, 2], "b": [0, -1, -2]}
    batches = len(table.batches)
    start(table, now=True, bucket="again")
    assert len(table.batches) == batches


def test_limits_cut_micro_batches_and_lose_nothing(client: Client, start: Start) -> None:
    create(client, "slow", "a", "b")
    bucket, table = client.bucket("slow"), Table()
    bucket.stream("a").append_json(*range(100))
    bucket.stream("b").append_json(*range(10))
    start(table, now=True, bucket="slow", maxMessagesPerTrigger="30")
    assert table.values() == {"a": list(range(100)), "b": list(range(10))}
    assert [len(rows) for _, rows in sorted(table.batches.items())] == [30, 30, 30, 20]
    table = Table()
    start(table, now=True, checkpoint="bytes", bucket="slow", maxBytesPerTrigger="100")
    assert table.values() == {"a": list(range(100)), "b": list(range(10))}
    assert len(table.batches) > 2


def test_the_backlog_is_in_the_progress(client: Client, start: Start) -> None:
    create(client, "lag1", "a")
    client.bucket("lag1").stream("a").append_json(*range(50))
    query = start(Table(), now=True, bucket="lag1", maxMessagesPerTrigger="20")
    lags = [json.loads(item.sources[0].latestOffset) for item in query.recentProgress]
    assert [lag["messagesBehind"] for lag in lags if lag["streamsBehind"]][:2] == [30, 10]
    assert lags[-1] == {"streamsBehind": 0, "messagesBehind": 0, "bytesBehind": 0}


def test_latest_starts_with_new_messages(client: Client, start: Start) -> None:
    create(client, "late", "a")
    stream, table = client.bucket("late").stream("a"), Table()
    stream.append_json(1)
    start(table, now=True, bucket="late", startingOffsets="latest")
    stream.append_json(2)
    start(table, now=True, bucket="late", startingOffsets="latest")
    assert table.values() == {"a": [2]}


def test_streams_that_are_gone_obey_fail_on_data_loss(client: Client, start: Start) -> None:
    create(client, "gone", "a", "b", "done")
    bucket, table = client.bucket("gone"), Table()
    for name in ("a", "b", "done"):
        bucket.stream(name).append_json(1)
    bucket.stream("done").close()
    start(table, now=True, bucket="gone")
    # Closed and read to its end: nothing of it can be lost.
    bucket.stream("done").delete()
    start(table, now=True, bucket="gone")
    bucket.stream("a").delete()
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        start(table, now=True, bucket="gone")
    bucket.stream("b").append_json(2)
    start(table, now=True, bucket="gone", failOnDataLoss="false")
    assert table.values()["b"] == [1, 2]


def test_a_replaced_stream_is_detected(client: Client, start: Start) -> None:
    create(client, "swap", "a")
    bucket, table = client.bucket("swap"), Table()
    bucket.stream("a").append_json(1)
    start(table, now=True, bucket="swap")
    bucket.stream("a").delete()
    bucket.stream("a").create("application/json", body=b"[7,8,9]")
    with pytest.raises(StreamingQueryException, match="created again"):
        start(table, now=True, bucket="swap")
    start(table, now=True, bucket="swap", failOnDataLoss="false")
    assert table.values() == {"a": [1, 7, 8, 9]}


def test_a_restarted_server_does_not_fail_the_fold(
    client: Client, server: ServerProcess, start: Start
) -> None:
    create(client, "kill", "a")
    stream, table = client.bucket("kill").stream("a"), Table()
    stream.append_json(1)
    query = start(table, bucket="kill")
    table.wait_for(lambda found: found == {"a": [1]})
    server.kill()
    server.start()
    stream.append_json(2)
    table.wait_for(lambda found: found == {"a": [1, 2]})
    query.stop()


def test_bootstrap_brings_the_snapshot_first(client: Client, start: Start) -> None:
    create(client, "boot", "a")
    stream, table = client.bucket("boot").stream("a"), Table()
    offset = stream.append_json(1, 2).next_offset
    assert offset is not None
    stream.append_json(3)
    stream.publish_snapshot(b"[1,2]", offset, "application/json")
    start(table, now=True, bucket="boot", bootstrap="true")
    stream.append_json(4)
    start(table, now=True, bucket="boot", bootstrap="true")
    rows = [row for _, rows in sorted(table.batches.items()) for row in rows]
    assert [(row.is_snapshot, bytes(row.value)) for row in rows] == [
        (True, b"[1,2]"),
        (False, b"3"),
        (False, b"4"),
    ]
