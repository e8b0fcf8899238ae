"""A batch write of numbers, with the same rows in the same partitions at every run."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tests.spark.faults.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["STREAMS", "write_numbers"]

STREAMS = 3


def write_numbers(spark: "SparkSession", pipeline: Pipeline, count: int) -> None:
    """Write `count` numbers to each of three streams."""
    number = F.floor(F.col("id") / STREAMS)
    rows = spark.range(count * STREAMS).select(
        F.concat(F.lit("s"), F.col("id") % STREAMS).alias("stream"),
        F.to_json(F.struct(number.alias("n"))).alias("value"),
        number.alias("n"),
    )
    shuffled = rows.repartition(3, "stream")
    shuffled.write.format("tailrace").mode("append").options(**pipeline.sink).save()
