"""
A client of Spark Connect: no Java in its process, and no Tailrace but on the server's side.

    python -m tests.spark.cluster.connect_client {sc://…} {url of a Tailrace server} {scratch}

Prints what it saw as one line of JSON.
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

CREATE = {"createStreams": "true", "createBuckets": "true"}


def batch(spark: SparkSession, url: str) -> list[Any]:
    """Write rows, then read them."""
    rows = spark.range(100).select(
        F.to_json(F.struct("id")).alias("value"), F.col("id").alias("at")
    )
    rows.repartition(3).coalesce(1).write.format("tailrace").mode("append").options(
        url=url, bucket="batch", stream="s", orderBy="at", **CREATE
    ).save()
    found = spark.read.format("tailrace").options(url=url, bucket="batch", value="text").load()
    return [json.loads(row.value)["id"] for row in found.orderBy("message").collect()]


def query(spark: SparkSession, url: str, checkpoint: str) -> None:
    """Copy a bucket to a stream of another bucket, twice with the same checkpoint."""
    for _ in range(2):
        rows = spark.readStream.format("tailrace").options(url=url, bucket="batch").load()
        started = (
            rows.select(F.lit("copy").alias("stream"), "value", "message")
            .writeStream.format("tailrace")
            .options(url=url, bucket="copied", orderBy="message", **CREATE)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()


def sql(spark: SparkSession, url: str) -> list[int]:
    """A view with options, and a table that gets them in the query."""
    options = f"url '{url}', bucket 'batch'"
    spark.sql(f"CREATE TEMPORARY VIEW seen USING tailrace OPTIONS ({options})")
    counts = [spark.sql("SELECT count(*) FROM seen").collect()[0][0]]
    # A table keeps no options for a read, and a view takes no others.
    spark.sql("CREATE TABLE kept (stream STRING, value STRING) USING tailrace")
    for start in ("earliest", "latest"):
        given = f"'url' = '{url}', 'bucket' = 'batch', 'startingOffsets' = '{start}'"
        counts.append(spark.sql(f"SELECT count(*) FROM kept WITH ({given})").collect()[0][0])
    spark.sql("DROP TABLE kept")
    return counts


def main(remote: str, url: str, scratch: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    found = {"batch": batch(spark, url)}
    query(spark, url, f"{scratch}/checkpoint")
    found["sql"] = sql(spark, url)
    spark.stop()
    sys.stdout.write(f"\nFOUND {json.dumps(found)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
