"""
A bucket becomes a table that grows with it, and large orders are written to another bucket.

    streams of bucket "orders"  ->  table `orders`  ->  streams of bucket "large-orders"
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

# `spark-pipelines` has started a session before it runs this file.
spark = SparkSession.active()
url = os.environ.get("TAILRACE_URL", "http://127.0.0.1:4437")


@dp.table
def orders() -> DataFrame:
    """Every message of every stream, once, also of streams that are created later."""
    rows = spark.readStream.format("tailrace").options(url=url, bucket="orders").load()
    text = F.col("value").cast("string")
    return rows.select(
        "stream",
        "message",
        "time",
        F.get_json_object(text, "$.id").cast("long").alias("id"),
        F.get_json_object(text, "$.amount").cast("double").alias("amount"),
    )


dp.create_sink(
    "large_orders",
    "tailrace",
    {
        "url": url,
        "bucket": "large-orders",
        "createStreams": "true",
        "createBuckets": "true",
        # Keep the order of the rows of a stream.
        "orderBy": "message",
    },
)


@dp.append_flow(target="large_orders")
def large_orders_flow() -> DataFrame:
    """One message per large order, in a stream of the same name."""
    return (
        spark.readStream.table("orders")
        .where("amount >= 100")
        .select("stream", "message", F.to_json(F.struct("id", "amount")).alias("value"))
        .repartition(2, "stream")
    )
