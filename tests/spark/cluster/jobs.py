"""
What runs on the cluster: writes whose attempts differ as attempts after a shuffle do.

    python -m tests.spark.cluster.jobs {master} {job} '{arguments as JSON}'
"""

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import functions as F

from tailrace.client import Client
from tailrace.protocol.offset import START
from tailrace.spark.session import new_session
from tests.spark.faults.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Batches = Iterator[Any]
WAIT_S = 60.0

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "5s",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


def uneven(slow_s: float, url: str, note: str) -> Callable[[Batches], Batches]:
    """
    Rows of a task slowly at its first attempt, and at others in the opposite order.

    Others wait until the first has stored something, and leave a note. Partition 0 alone is slow:
    another one must have ended for Spark to find it so. Made here, it goes to tasks by its value.
    """

    def run(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        gathered = list(batches)
        pause_s = slow_s / max(1, len(gathered)) if context.partitionId() == 0 else 0
        if context.attemptNumber():
            gathered.reverse()
            pause_s = 0
            Path(note).write_text(f"{context.attemptNumber()} on {socket.gethostname()}")
            with Client(url) as client:
                stream = client.bucket("target").stream("s0")
                end = time.monotonic() + WAIT_S
                while stream.head().next_offset <= stream_start and time.monotonic() < end:
                    time.sleep(0.02)
        for batch in gathered:
            time.sleep(pause_s)
            yield batch

    stream_start = START.token()
    return run


def numbers(
    spark: "SparkSession",
    *,
    url: str,
    count: int,
    slow_s: float,
    note: str,
    options: dict[str, str],
) -> None:
    """Numbers 0 … count for one stream, of which one task, the slow one, has all."""
    rows = spark.range(0, count, 1, 2).select(
        F.to_json(F.struct(F.col("id").alias("n"))).alias("value"), F.col("id").alias("n")
    )
    # All rows in partition 0 of 2, the other one is empty and ends at once.
    together = rows.repartitionByRange(2, F.lit(0)).select("value", "n")
    run = uneven(slow_s, url, note)
    uneven_rows = together.mapInArrow(run, "value string, n long")
    uneven_rows.write.format("tailrace").mode("append").options(
        url=url, bucket="target", stream="s0", **options
    ).save()


def query(spark: "SparkSession", *, pipeline: dict[str, Any]) -> None:
    """The pipeline of the faults, until all that there is is through."""
    Pipeline(**pipeline).run(spark)


def main(master: str, job: str, arguments: dict[str, Any]) -> None:
    conf = dict(SETTINGS)
    if arguments.pop("speculation", False):
        conf.update(SPECULATION)
    conf["spark.sql.warehouse.dir"] = str(Path(arguments.pop("scratch")) / "warehouse")
    spark = new_session("cluster", master, conf)
    run: dict[str, Callable[..., None]] = {"numbers": numbers, "query": query}
    run[job](spark, **arguments)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
