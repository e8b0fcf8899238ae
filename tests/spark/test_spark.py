"""The sink, the source and one job on a real Spark: the tests of Spark that always run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.client import Client
from tailrace.spark.jobs.archive import archive
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "orders"
VALUES = {f"s{number}": [{"n": at} for at in range(number, number + 20)] for number in range(3)}


@pytest.fixture
def bucket(client: Client) -> None:
    client.bucket(BUCKET).create()
    for name, values in VALUES.items():
        client.bucket(BUCKET).stream(name).create("application/json", body=json.dumps(values))


def test_the_sink_stores_each_row_once_and_in_order(spark: "SparkSession", client: Client) -> None:
    rows = [
        (name, at, json.dumps(value))
        for name, values in VALUES.items()
        for at, value in enumerate(values)
    ]
    frame = spark.createDataFrame(rows, "stream string, at int, value string").repartition(2)
    for _ in range(2):
        (
            frame.repartition(2, "stream")
            .write.format("tailrace")
            .options(url=client.url, bucket="written", sinkId="test", batchId="1", orderBy="at")
            .options(createStreams="true", createBuckets="true")
            .mode("append")
            .save()
        )
    streams = client.bucket("written").streams()
    stored = {
        each.stream_id: [
            item.value for item in client.bucket("written").stream(each.stream_id).read_json()
        ]
        for each in streams
    }
    assert stored == VALUES


@pytest.mark.usefixtures("bucket")
def test_the_source_reads_every_message_in_order(
    spark: "SparkSession", server: ServerProcess
) -> None:
    frame = spark.read.format("tailrace").options(url=server.url, bucket=BUCKET).load()
    found: dict[str, list[object]] = {}
    for row in sorted(frame.collect(), key=lambda row: (row.stream, row.message)):
        assert row.bucket == BUCKET
        found.setdefault(row.stream, []).append(json.loads(row.value))
    assert found == VALUES


@pytest.mark.usefixtures("bucket")
def test_archive_stores_each_message_once(
    spark: "SparkSession", server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """A second run adds only the new messages."""
    table = tmp_path / "table"
    assert archive(spark, url=server.url, bucket=BUCKET, table=table).rows == 60
    client.bucket(BUCKET).stream("s0").append_json({"n": 99})
    again = archive(spark, url=server.url, bucket=BUCKET, table=table)
    assert (again.batches, again.rows) == (1, 1)
    rows = spark.read.parquet(str(table)).select("stream", "message").collect()
    assert len(rows) == len(set(rows)) == 61
