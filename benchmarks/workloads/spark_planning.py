"""How long does it take to plan a micro-batch, as streams grow, if few of them changed?

The driver's work between two micro-batches, without Spark: find the changed streams, and make
partitions of them. The first plan lists the bucket; the next ones request the changes since then.
"""

from __future__ import annotations

import json
import statistics
import time

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from benchmarks import spark_data
from benchmarks.model import (
    OURS,
    AtMost,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    Workload,
    exactly,
)
from tailrace.client import Client
from tailrace.spark.source.data_source import TailraceDataSource
from tailrace.spark.source.planning import SourcePartition

CHANGED = 100
ROUNDS = 5


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Plan over more and more streams."""
    outcome = Outcome()
    made = 0
    spark_data.make_bucket(server)
    for name, total in zip(("few", "some", "many"), sizes.planned_streams, strict=False):
        names = (f"s{number:07d}" for number in range(made, total))
        spark_data.make_streams(server, ((name, b"[1]") for name in names))
        made = total
        first, following, found = _plan(server, total)
        outcome.checks.append(exactly(f"changed of {total}", min(CHANGED, total) * ROUNDS, found))
        outcome.metrics[f"{name}_first_ms"] = first * 1000
        outcome.metrics[f"{name}_next_ms"] = following * 1000
        progress(f"{total}: first {first * 1000:.0f} ms, next {following * 1000:.1f} ms")
    # Of the largest number of streams.
    outcome.metrics["largest_first_ms"] = first * 1000
    outcome.metrics["largest_next_ms"] = following * 1000
    return outcome


def _plan(server: Server, total: int) -> tuple[float, float, int]:
    """Seconds for the first plan and for one of those after it, and the streams in the latter."""
    source = TailraceDataSource({"url": spark_data.url_of(server), "bucket": spark_data.BUCKET})
    reader = source.streamReader(StructType(source.schema().fields))
    began = time.perf_counter()
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    first = time.perf_counter() - began
    times, found = [], 0
    with Client(spark_data.url_of(server)) as client:
        bucket = client.bucket(spark_data.BUCKET)
        for _ in range(ROUNDS):
            for number in range(0, total, max(1, total // CHANGED))[:CHANGED]:
                bucket.stream(f"s{number:07d}").append_json(1)
            began = time.perf_counter()
            # Spark passes offsets as JSON text.
            end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
            tasks = reader.partitions(start, end)
            times.append(time.perf_counter() - began)
            found += sum(len(task.ranges) for task in tasks if isinstance(task, SourcePartition))
            start = end
    reader.stop()
    return first, statistics.median(times), found


WORKLOAD = Workload(
    name="spark_planning",
    question="How long does it take to plan a micro-batch, as streams grow?",
    run=run,
    rows=(
        Row("few_next_ms", "plan a micro-batch, 100 streams changed of 100", "ms", False),
        Row("some_next_ms", "the same of 10,000", "ms", False),
        Row("largest_next_ms", "the same of 100,000", "ms", False, (AtMost(500),)),
        Row("largest_first_ms", "the first plan of 100,000", "ms", False),
    ),
    peers=(OURS,),
    one_round=True,
)
