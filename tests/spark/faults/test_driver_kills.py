"""SIGKILL of the driver, with its Java, amid batches; then the same again on its checkpoint."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.client import Client
from tests.spark.faults.pipeline import Pipeline, Source, stored, total, whole
from tests.spark.faults.processes import Driver
from tests.spark.faults.writing import STREAMS, write_numbers
from tests.support.chance import seeded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

KILLS = 2


def test_a_query_whose_driver_is_killed_again_and_again(
    spark: "SparkSession", source: Source, sink: Client, pipeline: Pipeline, tmp_path: Path
) -> None:
    """
    Method: each life of the driver is ended after some more messages have come out, wherever that
    finds it; there are always batches left. The last life is one of the tests' own Spark.
    """
    pipeline.shuffle = "state"
    with seeded("driver-kills") as chance:
        for _ in range(KILLS):
            source.add(40)
            source.repeat(10)
            bound = total(sink) + chance.randrange(10, 120)
            with Driver("query", pipeline, tmp_path) as driver:
                assert driver.kill_when(lambda bound=bound: total(sink) >= bound)  # type: ignore[misc]
            assert whole(stored(sink))
    source.add(5)
    pipeline.run(spark)
    assert stored(sink) == source.all


def test_a_batch_with_an_id_whose_driver_is_killed(
    spark: "SparkSession", sink: Client, pipeline: Pipeline, tmp_path: Path
) -> None:
    """A rerun with the same sinkId and batchId completes the write."""
    pipeline.options = {"sinkId": "once", "batchId": "7"}
    with Driver("batch", pipeline, tmp_path, "2000") as driver:
        assert driver.kill_when(lambda: total(sink) >= 100)
    assert 0 < total(sink) < 2000 * STREAMS
    for _ in range(2):
        write_numbers(spark, pipeline, 2000)
        assert stored(sink) == {f"s{at}": list(range(2000)) for at in range(STREAMS)}
