"""How many messages per second does Spark write, each stored once?

JSON lines of 230 bytes from files, to one stream and to a hundred streams chosen by a column.
Appends are durable when acknowledged, by exactly-once producers. The streams must then hold every
message.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks import spark_data
from benchmarks.model import (
    OURS,
    AtLeast,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    Workload,
    exactly,
)
from benchmarks.workloads.spark_read import write_files
from tailrace.client import Client

STREAMS = 100


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Write the files once to one stream, once to many."""
    outcome = Outcome()
    total = sizes.spark_messages
    spark_data.make_bucket(server)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-json-") as directory:
        write_files(Path(directory), total)
        lines = spark_data.session().read.text(directory)
        many = lines.selectExpr("value", f"concat('many-', hash(value) % {STREAMS}) as stream")
        for name, frame in (("one", lines), ("many", many)):
            writer = frame.write.format("tailrace").mode("append")
            options = {"stream": "one"} if name == "one" else {}
            began = time.perf_counter()
            writer.options(
                url=spark_data.url_of(server),
                bucket=spark_data.BUCKET,
                createStreams="true",
                stableInput="true",
                **options,
            ).save()
            seconds = time.perf_counter() - began
            outcome.metrics[f"{name}_per_s"] = total / seconds
            progress(f"{name}: {total / seconds:,.0f} messages/s")
            outcome.checks.append(exactly(f"stored, {name}", total, _stored(server, name)))
    return outcome


def _stored(server: Server, prefix: str) -> int:
    with Client(spark_data.url_of(server)) as client:
        streams = client.bucket(spark_data.BUCKET).streams(prefix)
        return sum(int((item.next_offset or "0").split("_")[0]) for item in streams)


WORKLOAD = Workload(
    name="spark_write",
    question="How many messages per second does Spark write, each stored once?",
    run=run,
    rows=(
        Row("one_per_s", "Spark writes, one stream", "/s", True, (AtLeast(300_000),)),
        Row("many_per_s", "Spark writes, 100 streams by a column", "/s", True),
    ),
    peers=(OURS,),
)
