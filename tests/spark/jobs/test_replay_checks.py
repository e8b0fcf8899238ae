"""What a replay refuses to send: rows whose order, or whose stream, is not certain."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.client import Client
from tailrace.spark.jobs.archive import PARTITION_BY, archive
from tailrace.spark.jobs.replay import ReplayAmbiguous, ReplayResult, ReplayUnsupported, replay
from tailrace.spark.tables import open_table
from tests.spark.jobs.contents import contents
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:1"
Archived = Callable[..., Path]
Row = tuple[str | None, str, int | None, int | None]
"""Bucket, stream, message, time in seconds."""


def table_of(rows: "DataFrame", path: Path) -> Path:
    open_table("parquet", path, partition_by=PARTITION_BY).commit(0, rows)
    return path


@pytest.fixture
def archived(spark: "SparkSession", tmp_path: Path) -> Archived:
    def make(*rows: Row) -> Path:
        given = spark.createDataFrame(rows, "bucket string, stream string, message long, s long")
        made = given.selectExpr(
            "bucket", "stream", "message", "format_string('%020d', message) as offset",
            "format_string('%020d', message + 1) as next_offset", "timestamp_seconds(s) as time",
            "'text/plain' as content_type", "cast(stream as binary) as value",
            "date'2026-01-01' as day",
        )  # fmt: skip
        return table_of(made, tmp_path / "table")

    return make


def send(
    spark: "SparkSession", table: Path, url: str = NOBODY, bucket: str | None = None,
    where: str | None = None,
) -> ReplayResult:  # fmt: skip
    return replay(
        spark,
        table=table,
        url=url,
        replay_id=f"{bucket} {where}",
        bucket=bucket,
        where=where,
        partitions=2,
    )


def test_streams_of_the_same_name_are_not_merged(
    spark: "SparkSession", archived: Archived, server: ServerProcess, client: Client
) -> None:
    """Nor one of a bucket and one without; where each keeps its bucket, nothing is mixed."""
    table = archived(
        ("left", "s", 0, 0), ("right", "s", 0, 0), (None, "p", 0, 0), ("right", "p", 0, 0)
    )
    for where, stream, buckets in (
        ("stream = 's'", "s", {"left", "right"}),
        ("stream = 'p'", "p", {None, "right"}),
    ):
        with pytest.raises(ReplayAmbiguous, match="replay each bucket separately") as refused:
            send(spark, table, bucket="both", where=where)
        assert (refused.value.stream, set(refused.value.buckets)) == (stream, buckets)
        assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    assert send(spark, table, server.url, where="stream = 's'").messages == 2
    assert send(spark, table, server.url, bucket="both", where="bucket = 'right'").messages == 2
    assert contents(client, "both").keys() == {"s", "p"}


def test_messages_without_numbers_are_refused(
    spark: "SparkSession", archived: Archived, server: ServerProcess, client: Client
) -> None:
    """As another server's are: they have no order, and were reported as sent and were not."""
    table = archived(("left", "s", 0, 0), ("left", "other", None, None))
    with pytest.raises(ReplayUnsupported, match="stream 'other' without numbers"):
        send(spark, table)
    assert send(spark, table, server.url, where="message is not null").messages == 1
    assert contents(client, "left").keys() == {"s"}


def test_a_later_stream_with_lower_numbers_is_another_one(
    spark: "SparkSession", archived: Archived
) -> None:
    """The old one's first messages were gone before it was archived: no number is there twice."""
    table = archived(
        ("left", "s", 7, 100), ("left", "s", 8, 101), ("left", "s", 0, 200), ("left", "t", 0, 0)
    )
    with pytest.raises(ReplayAmbiguous, match=r"two streams called 's'.*choose by time"):
        send(spark, table)


def test_a_clock_that_was_set_back_is_not_another_stream(
    spark: "SparkSession", server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """Offsets as the server gives them say that one message follows the other."""
    client.bucket("left").create()
    stream = client.bucket("left").stream("s")
    stream.create("application/json")
    stream.append_json(1, "two", [3])
    stream.append_json({"four": 4})
    archive(spark, url=server.url, bucket="left", table=tmp_path / "first")
    rows = open_table("parquet", tmp_path / "first", partition_by=PARTITION_BY).read(spark)
    back = rows.selectExpr("* except (time)", "time - make_dt_interval(0, 0, message) as time")
    table = table_of(back, tmp_path / "back")
    assert send(spark, table, server.url, bucket="copy").messages == 4
    assert contents(client, "copy") == contents(client, "left")
