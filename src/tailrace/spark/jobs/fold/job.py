"""
`fold`: reduces the messages of each stream to a state, published as the stream's snapshot.

The server then drops the messages that the snapshot covers, and a new reader gets the state and
the later messages in one request (X§3). A run continues from the snapshots of earlier runs.

    plan      on the driver, from one listing of the bucket     `plan`
    fold      in tasks of about the same size                   `task`
    publish   at exactly the tail in the plan

Writers can append meanwhile: their messages come after the snapshot. Runs may overlap, be killed at
any time and be repeated: every visible snapshot is the fold of all messages before its offset.

Not detected: a stream that is deleted and created again between its reading and its publication,
with messages of exactly the same sizes.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from tailrace.spark.connection import connect
from tailrace.spark.folds import FoldSpec
from tailrace.spark.jobs.fold.plan import DuePolicy, FoldPlan, PlanEntry, group, plan
from tailrace.spark.jobs.fold.results import (
    PLANNED,
    SKIPPED,
    FoldResult,
    StreamFold,
    unfolded,
)
from tailrace.spark.jobs.fold.task import FoldTask
from tailrace.spark.jobs.parameters import takes
from tailrace.spark.options import ConnectionOptions
from tailrace.spark.progress import Watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["FoldResult", "StreamFold", "fold"]

GROUPS_PER_CORE: Final = 4
"""Several, so that cores finish at about the same time; a task costs 40 ms."""
_RESULTS_PER_BATCH: Final = 500


@dataclass(frozen=True, kw_only=True)
class FoldJob(ConnectionOptions):
    """
    The parameters of `fold`.

    Args:
        fold: last-write-wins, state, merge-patch, concat, or `module:function`, which every worker
            must be able to import.
        key: For last-write-wins, the path of the key: `id`, `a.b` or `/a/b`.
        prefix, pattern: Only streams whose ids begin with this, or match, as `orders-*`.
        min_bytes, min_messages, min_age_s: Only streams with at least this much new data, or with
            new data and a snapshot of at least this age (the stream's age if it has none). One
            of them is enough; without any, new data is enough.
        adopt: Continue from snapshots of unknown origin that look like states of this fold.
        dry_run: Plan only.
    """

    bucket: str
    fold: str
    key: str | None = None
    prefix: str = ""
    pattern: str | None = None
    min_bytes: int | None = None
    min_messages: int | None = None
    min_age_s: float | None = None
    adopt: bool = False
    dry_run: bool = False
    watch: Watch | None = None


@takes(FoldJob)
def fold(spark: "SparkSession", job: FoldJob) -> FoldResult:
    """
    Fold the streams of a bucket and publish their states as snapshots.

    Raises:
        FoldInvalid: There is no such fold.
        NotFound: There is no such bucket.
        FoldUnsupported: It is not a Tailrace server.
    """
    spec = FoldSpec.of(job.fold, job.key)
    policy = DuePolicy(job.min_bytes, job.min_messages, job.min_age_s)
    now_ms = int(time.time() * 1000)
    with connect(job) as client:
        bucket = client.bucket(job.bucket)
        planned = plan(
            bucket, job.bucket, spec, policy, now_ms, prefix=job.prefix, pattern=job.pattern
        )
    if job.dry_run:
        results = [unfolded(entry, PLANNED) for entry in planned.due]
    else:
        results = _run(spark, job, FoldTask(spec, job.adopt), planned.due)
    return _result(planned, results)


def _run(
    spark: "SparkSession", job: FoldJob, task: FoldTask, entries: Sequence[PlanEntry]
) -> list[StreamFold]:
    """Fold all streams, one group per Spark task. Entries and results travel as JSON."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    if not entries:
        return []
    context = spark.sparkContext
    groups = group(entries, GROUPS_PER_CORE * context.defaultParallelism)
    done = context.accumulator(0)
    if job.watch is not None:
        job.watch.count_by(lambda: int(done.value))
    # The watch stays on the driver: it cannot be sent to tasks.
    connection = replace(job, watch=None)

    def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        with connect(connection) as client:
            for batch in batches:
                texts = batch.column("entry").to_pylist()
                planned = [msgspec.json.decode(text, type=PlanEntry) for text in texts]
                results = task.fold_streams(client, planned, done.add)
                while some := list(islice(results, _RESULTS_PER_BATCH)):
                    yield pa.record_batch([[*map(msgspec.json.encode, some)]], names=["result"])

    rows = [(at, msgspec.json.encode(each)) for at, some in enumerate(groups) for each in some]
    numbers, encoded = zip(*rows, strict=True)
    table = pa.table({"group": pa.array(numbers, pa.int32()), "entry": pa.array(encoded)})
    # By id, not by hash: a hash could put two groups into one task.
    tasks = spark.createDataFrame(table).repartitionById(len(groups), F.col("group"))
    found = tasks.mapInArrow(run, "result binary").collect()
    return [msgspec.json.decode(bytes(row["result"]), type=StreamFold) for row in found]


def _result(planned: FoldPlan, results: Iterable[StreamFold]) -> FoldResult:
    """All results, in the order of stream ids."""
    skipped = (
        unfolded(
            entry,
            SKIPPED,
            "content-type-unsuited",
            f"its type is {entry.content_type}, and this fold needs JSON",
        )
        for entry in planned.unsuited
    )
    streams = sorted([*results, *skipped], key=lambda result: result.stream)
    return FoldResult(streams, planned.not_due)
