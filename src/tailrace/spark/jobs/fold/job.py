"""
`fold`: per stream, messages → state → published back as the stream's snapshot.

The server then drops the messages that the snapshot covers, and a new reader gets the state and
what came after it in one request (X§3). A run continues from the snapshots of the runs before it.

    plan      on the driver, from one listing of the bucket           `fold_plan`
    fold      in tasks of about the same bytes, a share of streams    `fold_task`
    publish   at exactly the tail that the plan saw

Live writers go on meanwhile: what they append lies after the snapshot. Runs may overlap, be killed
anywhere and be repeated: every snapshot that is ever visible is the fold of all before its offset.

What is not told apart: a stream that is deleted and created again within the seconds between its
reading and its publication, with messages of exactly the same sizes.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark.folds import FoldSpec
from tailrace.spark.jobs.fold.plan import Plan, PlanEntry, Policy, group, plan
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
from tailrace.spark.options import Connection
from tailrace.spark.progress import Watch
from tailrace.spark.source.catalog import connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["FoldResult", "StreamFold", "fold"]

GROUPS_PER_CORE: Final = 4
"""So that a core which is done early takes over from the others; a task costs 40 ms."""
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
            can import.
        key: For last-write-wins, the path of the key: `id`, `a.b` or `/a/b`.
        prefix, pattern: Only streams whose ids begin so, or match, as `orders-*`.
        min_bytes, min_messages, min_age_s: Only streams with so much since their last snapshot, or
            with anything new and a snapshot that is older (or none, and created so long ago). One
            that is met is enough; without any, anything new is.
        adopt: Continue from snapshots that another fold made, or something else, if they look like
            states of this one.
        dry_run: Plan only.

    Raises:
        FoldInvalid: There is no such fold.
        NotFound: There is no such bucket.
        FoldUnsupported: The server is another one, whose listings do not say enough.
    """
    spec = FoldSpec.of(fold, key)
    policy = Policy(min_bytes, min_messages, min_age_s)
    connection = Connection(url=url, token=token, headers=headers or {}, timeout_s=timeout_s)
    now_ms = int(time.time() * 1000)
    with connect(connection) as client:
        planned = plan(
            client.bucket(bucket), bucket, spec, policy, now_ms, prefix=prefix, pattern=pattern
        )
    if dry_run:
        results = [unfolded(entry, PLANNED) for entry in planned.due]
    else:
        run = _Run(connection, FoldTask(spec, adopt))
        results = _run(spark, run, planned.due, watch)
    return _result(planned, results)


@dataclass(frozen=True)
class _Run:
    """What goes to the tasks."""

    connection: Connection
    task: FoldTask

    def folder(
        self, count: Callable[[int], object]
    ) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
        def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            with connect(self.connection) as client:
                for batch in batches:
                    results = self.task.fold_streams(client, entries_of(batch), count)
                    for some in _chunks(results, _RESULTS_PER_BATCH):
                        yield results_batch(some)

        return run


def _run(
    spark: "SparkSession", run: _Run, entries: Sequence[PlanEntry], watch: Watch | None
) -> list[StreamFold]:
    """Fold all of them, a group a task."""
    from pyspark.sql import functions as F

    if not entries:
        return []
    context = spark.sparkContext
    groups = group(entries, GROUPS_PER_CORE * context.defaultParallelism)
    done = context.accumulator(0)
    if watch is not None:
        watch.count_by(lambda: int(done.value))
    rows = spark.createDataFrame(entries_table(groups))
    # Not by hash: two groups in one task would leave another one idle.
    tasks = rows.repartitionById(len(groups), F.col("group"))
    found = tasks.mapInArrow(run.folder(done.add), RESULT_SQL).collect()
    return [StreamFold(*row) for row in found]


def _result(planned: Plan, results: Iterable[StreamFold]) -> FoldResult:
    """All results, in the order of the stream's ids."""
    skipped = (
        unfolded(
            entry,
            SKIPPED,
            "content-type-unsuited",
            f"it is of {entry.content_type}, and this fold is for JSON",
        )
        for entry in planned.unsuited
    )
    streams = sorted([*results, *skipped], key=lambda result: result.stream)
    return FoldResult(streams, planned.not_due)


def _chunks(items: Iterator[Any], count: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == count:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
