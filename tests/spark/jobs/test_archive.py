"""`archive`: a bucket as a table, incrementally and exactly once."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tailrace.client import Client
from tailrace.spark.jobs.archive import COLUMNS, archive
from tailrace.spark.tables import BatchDiffers, CheckpointTaken, SourceTaken, open_table
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

BUCKET = "2026"  # A name that readers of directories take for a number.


def fill(client: Client, first: int, count: int) -> None:
    bucket = client.bucket(BUCKET)
    for name in ("a", "b", "c%d"):
        stream = bucket.stream(name)
        stream.create("application/json")
        stream.append_json(*({"n": n} for n in range(first, first + count)))


def stored(spark: "SparkSession", table: Path) -> dict[str, list[Any]]:
    """By stream, the values in the order of their messages, which have no gaps."""
    rows = open_table("parquet", table, partition_by=("bucket", "day")).read(spark)
    assert rows.columns and set(rows.columns) == set(COLUMNS)
    found: dict[str, list[Any]] = {}
    for row in sorted(rows.collect(), key=lambda row: (row.stream, row.message)):
        values = found.setdefault(row.stream, [])
        assert (row.bucket, row.message) == (BUCKET, len(values))
        assert row.content_type == "application/json"
        values.append(json.loads(bytes(row.value))["n"])
    return found


def count_rows(table: Path) -> int:
    files = table.glob("bucket=*/day=*/*.parquet")
    return sum(pq.read_metadata(file).num_rows for file in files)


@pytest.fixture
def bucket(client: Client) -> None:
    client.bucket(BUCKET).create()


@pytest.mark.usefixtures("bucket")
def test_an_archive_grows_with_its_bucket(
    spark: "SparkSession", server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """Goal: every message once, over several batches and runs, and few files in the end."""
    table = tmp_path / "table"

    def run(max_messages: int | None = None) -> Any:
        return archive(
            spark, url=server.url, bucket=BUCKET, table=table,
            max_messages=max_messages, compact_files=4,
        )  # fmt: skip

    fill(client, 0, 20)
    first = run(15)
    assert (first.rows, first.batches) == (60, 4) and first.files >= 4 and first.bytes > 0
    assert first.compacted >= 4
    fill(client, 20, 5)
    again = run()
    assert (again.rows, again.batches) == (15, 1)
    assert run().rows == 0
    assert stored(spark, table) == {key: list(range(25)) for key in ("a", "b", "c%d")}


@pytest.mark.usefixtures("bucket")
def test_other_readers_of_parquet_see_each_row_once_by_bucket_and_day(
    spark: "SparkSession", server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    fill(client, 0, 3)
    archive(spark, url=server.url, bucket=BUCKET, table=table)
    layout = ds.HivePartitioning(pa.schema([("bucket", pa.string()), ("day", pa.date32())]))
    rows = ds.dataset(table, partitioning=layout).to_table().to_pylist()
    assert len(rows) == 9
    for row in rows:
        assert row["bucket"] == BUCKET and row["day"] == row["time"].astimezone(UTC).date()
        assert abs((datetime.now(UTC) - row["time"]).total_seconds()) < 3600
        assert row["offset"] < row["next_offset"]


@pytest.mark.usefixtures("bucket")
def test_a_checkpoint_of_another_table_is_refused(
    spark: "SparkSession", server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """A checkpoint that is set back would lose messages, a lost one would duplicate all."""
    table, checkpoint, backup = (tmp_path / name for name in ("table", "checkpoint", "backup"))

    def run(where: Path) -> None:
        archive(spark, url=server.url, bucket=BUCKET, table=table, checkpoint=where)

    fill(client, 0, 2)
    run(checkpoint)
    shutil.copytree(checkpoint, backup)
    fill(client, 2, 2)
    run(checkpoint)
    fill(client, 4, 2)
    with pytest.raises(BatchDiffers):
        run(backup)
    with pytest.raises(SourceTaken):
        run(tmp_path / "new")
    run(checkpoint)
    assert stored(spark, table) == {key: list(range(6)) for key in ("a", "b", "c%d")}
    shutil.rmtree(table)
    with pytest.raises(CheckpointTaken, match="miss earlier messages"):
        run(checkpoint)


@pytest.mark.usefixtures("bucket")
def test_an_endless_archive_stores_new_messages_until_it_is_stopped(
    spark: "SparkSession", server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    filled = False

    def stopped() -> bool:
        """Append more after the first batch, and wait until it is stored."""
        nonlocal filled
        if count_rows(table) and not filled:
            fill(client, 5, 5)
            filled = True
        return count_rows(table) == 30

    fill(client, 0, 5)
    archive(spark, url=server.url, bucket=BUCKET, table=table, every_s=0.1, stopped=stopped)
    assert set(map(tuple, stored(spark, table).values())) == {tuple(range(10))}
