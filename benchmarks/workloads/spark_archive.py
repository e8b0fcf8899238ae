"""How fast is a bucket archived to Parquet, and how soon is a message a row of the table?

Freshness is the time from an append to the end of the micro-batch that wrote its row to the table,
at the default trigger, one message every quarter of a second; it needs the clocks of one machine.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

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
from tailrace.spark.jobs.archive import PARTITION_BY, archive
from tailrace.spark.tables import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAUSE_S = 0.25
WAIT_S = 60.0


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Archive a bucket; then follow a stream to a table."""
    outcome = Outcome()
    total = sizes.spark_messages
    spark_data.make_bucket(server)
    spark_data.fill_one(server, "one", total)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-table-") as directory:
        spark = spark_data.session()
        began = time.perf_counter()
        done = archive(
            spark, url=spark_data.url_of(server), bucket=spark_data.BUCKET, table=directory
        )
        seconds = time.perf_counter() - began
        outcome.metrics["per_s"] = total / seconds
        progress(f"{total / seconds:,.0f} messages/s archived")
        outcome.checks.append(exactly("rows reported", total, done.rows))
        rows = open_table("parquet", directory, partition_by=PARTITION_BY).read(spark).count()
        outcome.checks.append(exactly("rows in the table", total, rows))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-fresh-") as directory:
        delays = _freshness(server, Path(directory), sizes.freshness_rows)
    outcome.checks.append(exactly("rows seen", sizes.freshness_rows, len(delays)))
    delays.sort()
    outcome.metrics["median_s"] = statistics.median(delays)
    outcome.metrics["p95_s"] = delays[int(0.95 * (len(delays) - 1))]
    progress(f"fresh after {outcome.metrics['median_s']:.2f} s")
    return outcome


def _freshness(server: Server, directory: Path, count: int) -> list[float]:
    delays: list[float] = []
    seen = threading.Event()

    def write(frame: DataFrame, _batch: int) -> None:
        frame = frame.persist()
        frame.write.mode("append").parquet(str(directory / "table"))
        now = time.time()
        sent = [json.loads(bytes(row.value))["sent"] for row in frame.select("value").collect()]
        frame.unpersist()
        delays.extend(now - moment for moment in sent if moment)
        if len(delays) >= count:
            seen.set()

    with Client(spark_data.url_of(server)) as client:
        stream = client.bucket(spark_data.BUCKET).stream("fresh")
        stream.create("application/json")
        stream.append_json({"sent": 0})
        source = spark_data.session().readStream.format("tailrace")
        source = source.options(url=spark_data.url_of(server), bucket=spark_data.BUCKET)
        rows = source.option("pattern", "fresh").load()
        query = rows.writeStream.foreachBatch(write)
        running = query.option("checkpointLocation", str(directory / "checkpoint")).start()
        try:
            deadline = time.monotonic() + WAIT_S
            while not (directory / "table").exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            for _ in range(count):
                stream.append_json({"sent": time.time()})
                time.sleep(PAUSE_S)
            seen.wait(WAIT_S)
        finally:
            running.stop()
    return delays[:count]


WORKLOAD = Workload(
    name="spark_archive",
    question="How fast is a bucket archived, and how soon is a message a row of the table?",
    run=run,
    rows=(
        Row("per_s", "archive to Parquet", "/s", True),
        Row("median_s", "from append to row of a table, median", "s", False, (AtMost(2),)),
        Row("p95_s", "the same, p95", "s", False),
    ),
    peers=(OURS,),
)
