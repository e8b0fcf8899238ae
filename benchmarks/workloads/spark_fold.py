"""How many messages a second does `fold` turn into snapshots?

Last write wins by key, over many streams. The snapshots together must hold every key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

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
from tailrace.client import Client
from tailrace.spark.jobs.fold import fold


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Fill the streams, fold them, count what the snapshots hold."""
    outcome = Outcome()
    streams = sizes.fold_streams
    each, keys = sizes.fold_messages // streams, sizes.fold_keys // streams
    spark_data.make_bucket(server)
    spark_data.make_streams(server, _bodies(streams, each, keys))
    spark = spark_data.session()
    began = time.perf_counter()
    done = fold(
        spark, url=spark_data.url_of(server), bucket=spark_data.BUCKET,
        fold="last-write-wins", key="/id",
    )  # fmt: skip
    seconds = time.perf_counter() - began
    outcome.metrics["per_s"] = streams * each / seconds
    progress(f"{streams * each / seconds:,.0f} messages/s")
    outcome.checks.append(exactly("messages folded", streams * each, done.messages))
    outcome.checks.append(exactly("keys in snapshots", streams * keys, _kept(server, streams)))
    return outcome


def _bodies(streams: int, each: int, keys: int) -> Iterator[tuple[str, bytes]]:
    for number in range(streams):
        values = (spark_data.message(at, key=at % keys) for at in range(each))
        yield f"s{number:06d}", b"[" + b",".join(values) + b"]"


def _kept(server: Server, streams: int) -> int:
    with Client(spark_data.url_of(server)) as client:
        bucket = client.bucket(spark_data.BUCKET)
        names = (f"s{number:06d}" for number in range(streams))
        return sum(len(json.loads(bucket.stream(name).snapshot().data)) for name in names)


WORKLOAD = Workload(
    name="spark_fold",
    question="How many messages a second does `fold` turn into snapshots?",
    run=run,
    rows=(Row("per_s", "fold, last write wins", "/s", True, (AtLeast(400_000),)),),
    peers=(OURS,),
)
