"""Checkpoints that are older than the data of the sink, and writers that share a sink id."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tailrace.client import Client
from tests.spark.faults.pipeline import Pipeline, Source, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def last_batch(checkpoint: str) -> int:
    return max(int(path.name) for path in Path(checkpoint, "commits").glob("[0-9]*"))


def forget_commit(checkpoint: str) -> None:
    """Simulate a driver that died between the commits of the sink and of the query."""
    last = last_batch(checkpoint)
    Path(checkpoint, "commits", str(last)).unlink()
    Path(checkpoint, "commits", f".{last}.crc").unlink()


@pytest.mark.parametrize("shuffle", ["stream", "state"])
def test_a_crash_between_the_commits_of_sink_and_query(
    spark: "SparkSession", source: Source, sink: Client, pipeline: Pipeline, shuffle: str
) -> None:
    """The last batch runs again, with newer messages; nothing is stored twice."""
    pipeline.shuffle = shuffle
    for _ in range(2):
        source.add(25)
        pipeline.run(spark)
        forget_commit(pipeline.checkpoint)
        source.add(10)
    pipeline.run(spark)
    assert stored(sink) == source.all


def test_a_checkpoint_that_was_rolled_back(
    spark: "SparkSession", source: Source, sink: Client, pipeline: Pipeline, tmp_path: Path
) -> None:
    """An older copy of the checkpoint is an error; nothing is stored twice."""
    source.add(20)
    pipeline.run(spark)
    shutil.copytree(pipeline.checkpoint, tmp_path / "copy")
    source.add(60)
    pipeline.run(spark)
    assert last_batch(pipeline.checkpoint) - last_batch(str(tmp_path / "copy")) >= 2
    rolled = Pipeline(pipeline.source_url, pipeline.target_url, str(tmp_path / "copy"))
    with pytest.raises(StreamingQueryException, match=r"refuses batch \d+ .*rolled back"):
        rolled.run(spark)
    assert stored(sink) == source.all
    # The checkpoint that was left in place is not harmed by that.
    source.add(5)
    pipeline.run(spark)
    assert stored(sink) == source.all


def test_two_queries_with_one_sink_id(
    spark: "SparkSession", source: Source, sink: Client, pipeline: Pipeline, tmp_path: Path
) -> None:
    """
    Two queries write the same rows, which are stored once: the later batch fences the other off.

    Method: what is read does not change, so that both make the same batches.
    """
    source.add(100)
    pipeline.options = {"sinkId": "shared"}
    other = Pipeline(
        pipeline.source_url,
        pipeline.target_url,
        str(tmp_path / "other"),
        options=pipeline.options,
    )
    queries = [each.start(each.shaped(each.read(spark))) for each in (pipeline, other)]
    failures = []
    for query in queries:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            failures.append(str(error))
        finally:
            query.stop()
    assert len(failures) < 2, failures
    assert all("another query writes with the same sinkId" in text for text in failures)
    assert stored(sink) == source.all
