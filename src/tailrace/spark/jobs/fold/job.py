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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from tailrace.spark.connection import connect
from tailrace.spark.folds import FoldSpec
from tailrace.spark.jobs.fold.plan import DuePolicy, FoldPlan, PlanEntry, group, plan
from tailrace.spark.jobs.fold.results import (
    PLANNED,
    RESULT_SQL,
    SKIPPED,
    FoldResult,
    StreamFold,
    entries_of,
    entries_table,
    results_batch,
    unfolded,
)
from tailrace.spark.jobs.fold.task import FoldTask
from tailrace.spark.options import ConnectionOptions
from tailrace.spark.progress import Watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["FoldResult", "StreamFold", "fold"]

GROUPS_PER_CORE: Final = 4
"""Several, so that cores finish at about the same time; a task costs 40 ms."""
_RESULTS_PER_BATCH: Final = 500


def fold(
    spark: "SparkSession",
    *,
    url: str,
    bucket: str,
    fold: str,
    key: str | None = None,
    prefix: str = "",
    pattern: str | None = None,
    min_bytes: int | None = None,
    min_messages: int | None = None,
    min_age_s: float | None = None,
    adopt: bool = False,
    dry_run: bool = False,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
    watch: Watch | None = None,
) -> FoldResult:
    """
    Fold the streams of a bucket and publish their states as snapshots.

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

    Raises:
        FoldInvalid: There is no such fold.
        NotFound: There is no such bucket.
        FoldUnsupported: It is not a Tailrace server.
    """
    spec = FoldSpec.of(fold, key)
    policy = DuePolicy(min_bytes, min_messages, min_age_s)
    connection = ConnectionOptions(url=url, token=token, headers=headers or {}, timeout_s=timeout_s)
    now_ms = int(time.time() * 1000)
    with connect(connection) as client:
        planned = plan(
            client.bucket(bucket), bucket, spec, policy, now_ms, prefix=prefix, pattern=pattern
        )
    if dry_run:
        results = [unfolded(entry, PLANNED) for entry in planned.due]
    else:
        run = _FoldRun(connection, FoldTask(spec, adopt))
        results = _run(spark, run, planned.due, watch)
    return _result(planned, results)


@dataclass(frozen=True)
class _FoldRun:
    """The parameters that Spark sends to tasks."""

    connection: ConnectionOptions
    task: FoldTask

    def mapper(
        self, count: Callable[[int], object]
    ) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
        def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            with connect(self.connection) as client:
                for batch in batches:
                    results = self.task.fold_streams(client, entries_of(batch), count)
                    while some := list(islice(results, _RESULTS_PER_BATCH)):
                        yield results_batch(some)

        return run


def _run(
    spark: "SparkSession", run: _FoldRun, entries: Sequence[PlanEntry], watch: Watch | None
) -> list[StreamFold]:
    """Fold all streams, one group per task."""
    from pyspark.sql import functions as F

    if not entries:
        return []
    context = spark.sparkContext
    groups = group(entries, GROUPS_PER_CORE * context.defaultParallelism)
    done = context.accumulator(0)
    if watch is not None:
        watch.count_by(lambda: int(done.value))
    rows = spark.createDataFrame(entries_table(groups))
    # By id, not by hash: a hash could put two groups into one task.
    tasks = rows.repartitionById(len(groups), F.col("group"))
    found = tasks.mapInArrow(run.mapper(done.add), RESULT_SQL).collect()
    return [StreamFold(*row) for row in found]


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
