"""The sink inside Spark: batch and streaming, with tasks that fail and checkpoints that go back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from tailrace.client import Client
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

CREATE = {"createStreams": "true", "createBuckets": "true"}


def rows(spark: "SparkSession", count: int, partitions: int = 2) -> "DataFrame":
    """JSON values for five streams, in an order that a shuffle makes."""
    return (
        spark.range(count)
        .select(
            F.concat(F.lit("s"), F.col("id") % 5).alias("stream"),
            F.to_json(F.struct("id")).alias("value"),
            F.col("id").alias("at"),
        )
        .repartition(partitions, "stream")
    )


def stored(client: Client, bucket: str) -> dict[str, list[int]]:
    return {
        listed.stream_id: [
            item.value["id"] for item in client.bucket(bucket).stream(listed.stream_id).read_json()
        ]
        for listed in client.bucket(bucket).streams()
    }


def expected(count: int) -> dict[str, list[int]]:
    return {f"s{at}": list(range(at, count, 5)) for at in range(5)}


def padded(number: int) -> str:
    return json.dumps({"id": number, "pad": "x" * 1000})


def fails_first(url: str, path: str, marker: Path, last: int) -> Callable[[int], str]:
    """Makes values; the first attempt fails at the last one, when some of its own are stored."""

    def make(number: int) -> str:
        context = TaskContext.get()
        if number == last and context is not None and context.attemptNumber() == 0:
            with Client(url) as client:
                found = next(client.stream(path).tail_json())
            marker.write_text(json.dumps(found.value["id"]))
            raise RuntimeError("this attempt fails on purpose")
        return padded(number)

    return make


def test_a_batch_write_by_column_in_order(spark: "SparkSession", client: Client) -> None:
    df = rows(spark, 5000)
    df.write.format("tailrace").mode("append").options(
        url=client.url, bucket="batch", orderBy="at", maxRequestBytes="4000", **CREATE
    ).save()
    assert stored(client, "batch") == expected(5000)


def test_a_retried_task_stores_nothing_twice(
    spark: "SparkSession", client: Client, tmp_path: Path
) -> None:
    """
    Method: rows come in small batches while they are made, so that the first attempt has sent a
    part of its requests when it fails.
    """
    client.stream("retry").create("application/json")
    marker = tmp_path / "failed"
    make = fails_first(client.url, "retry", marker, 1999)
    # Spark makes something else of a function with annotations.
    made = F.udf(lambda number: make(number), "string")
    options = {"url": client.url, "stream": "retry", "stableInput": "true"}
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        spark.range(0, 2000, 1, 1).select(made("id").alias("value")).write.format("tailrace").mode(
            "append"
        ).options(maxRequestBytes="20000", **options).save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert marker.read_text() == "0"
    assert [item.value["id"] for item in client.stream("retry").read_json()] == list(range(2000))


def test_a_batch_with_an_id_that_runs_again_stores_nothing_twice(
    spark: "SparkSession", client: Client
) -> None:
    def run(batch: int) -> None:
        rows(spark, 1000).write.format("tailrace").mode("append").options(
            url=client.url, bucket="named", orderBy="at", sinkId="job", batchId=str(batch), **CREATE
        ).save()

    run(3)
    run(3)
    assert stored(client, "named") == expected(1000)
    with pytest.raises(PySparkException, match="rolled back"):
        run(2)
    assert stored(client, "named") == expected(1000)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bucket": "none"}, "createStreams=true"),
        ({"bucket": "none", "orderBy": "nothing"}, "there is no column nothing"),
        ({"bucket": "none", "sinkId": "x"}, "needs a batchId"),
    ],
)
def test_errors_of_tasks_reach_the_user(
    spark: "SparkSession", client: Client, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        rows(spark, 100).write.format("tailrace").mode("append").options(
            url=client.url, **options
        ).save()


class Query:
    """A streaming query over files of numbers, a file a batch, that can be run again and again."""

    def __init__(self, spark: "SparkSession", server: ServerProcess, home: Path) -> None:
        self.spark = spark
        self.server = server
        self.inbox = home / "inbox"
        self.checkpoint = home / "checkpoint"
        self.inbox.mkdir()
        self._count = 0

    def add(self, count: int) -> None:
        """One more file; a name that begins with a dot is not looked at until it is whole."""
        numbers = range(self._count, self._count + count)
        self._count += count
        path = self.inbox / f".{numbers[0]:06d}.json"
        path.write_text("".join(f"{json.dumps({'id': n})}\n" for n in numbers))
        path.rename(self.inbox / path.name[1:])

    def run(self, **options: str) -> None:
        """All that is there, and then end."""
        read = self.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        numbers = read.json(str(self.inbox))
        query = (
            numbers.select(
                F.concat(F.lit("s"), F.col("id") % 5).alias("stream"),
                F.to_json(F.struct("id")).alias("value"),
                F.col("id").alias("at"),
            )
            .repartition(2, "stream")
            .writeStream.format("tailrace")
            .options(url=self.server.url, bucket="query", orderBy="at", **CREATE, **options)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget(self, log: str, batch: int) -> None:
        """As if the driver had died before it wrote this."""
        (self.checkpoint / log / str(batch)).unlink()
        (self.checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)


@pytest.fixture
def query(spark: "SparkSession", server: ServerProcess, tmp_path: Path) -> Query:
    return Query(spark, server, tmp_path)


def test_a_restarted_query_continues_and_repeats_nothing(query: Query, client: Client) -> None:
    """
    Method: several batches; then the driver "dies" after the sink's commit and before its own, so
    that a batch is written again; then more batches.
    """
    for _ in range(3):
        query.add(200)
    query.run()
    assert stored(client, "query") == expected(600)
    query.forget("commits", 2)
    query.run(maxRequestBytes="700")
    assert stored(client, "query") == expected(600)
    query.add(100)
    query.run()
    assert stored(client, "query") == expected(700)


def test_a_checkpoint_that_was_rolled_back_is_an_error(query: Query, client: Client) -> None:
    for _ in range(2):
        query.add(100)
    query.run()
    query.forget("offsets", 1)
    for batch in (1, 0):
        query.forget("commits", batch)
    with pytest.raises(PySparkException, match=r"(?s)refuses batch 0 .*rolled back"):
        query.run()
    assert stored(client, "query") == expected(200)


def test_bytes_keep_their_boundaries(spark: "SparkSession", client: Client) -> None:
    values = [bytes([n]) * (n % 7 + 1) for n in range(100)]
    table: list[tuple[Any, ...]] = [(n, bytearray(value)) for n, value in enumerate(values)]
    spark.createDataFrame(table, "at int, value binary").write.format("tailrace").mode(
        "append"
    ).options(
        url=client.url, bucket="bytes", stream="s", orderBy="at", contentType="a/b", **CREATE
    ).save()
    found = client.bucket("bytes").stream("s").bootstrap().messages
    assert sorted(found) == sorted(values)


def test_a_session_with_unstable_partitions_is_refused(
    spark: "SparkSession", server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    setting = "spark.sql.adaptive.streaming.stateless.enabled"
    client.bucket("adaptive").create()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "3").load()
    spark.conf.unset(setting)
    try:
        query = (
            rows.selectExpr("cast(value as string) as value")
            .writeStream.format("tailrace")
            .options(url=server.url, bucket="adaptive", stream="a", createStreams="true")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        with pytest.raises(StreamingQueryException, match=setting):
            query.awaitTermination(60)
    finally:
        spark.conf.set(setting, "false")
    assert list(client.bucket("adaptive").streams()) == []
