"""
Progress of a Spark job, in messages.

Rule 1: the numbers come from Spark (finished micro-batches, finished tasks). The job never waits
for them, and continues if they cannot be read.

Rule 2: a running micro-batch counts as the share of its tasks that are done, of the messages that
are left. This is an estimate, which the finished batch replaces.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Watch", "count_messages", "estimate", "watching"]

_POLL_S: Final = 0.5


class Watch:
    """Counts the messages of all streaming queries, and the tasks of other work."""

    def __init__(self, spark: "SparkSession", total: int | None) -> None:
        self._spark = spark
        self._total = total
        self._counts: dict[str, dict[int, int]] = {}
        """The messages of each batch, by query."""
        self._counter: Callable[[], int] | None = None

    def count_by(self, counter: Callable[[], int]) -> None:
        """Use the count of a job that counts its own messages."""
        self._counter = counter

    def done(self) -> int:
        """The messages that are done, as far as is known."""
        if self._counter is not None:
            return self._counter()
        for query in self._spark.streams.active:
            count_messages(query, self._counts.setdefault(query.runId, {}))
        finished = sum(sum(counts.values()) for counts in self._counts.values())
        return estimate(finished, self._total, *self._tasks())

    def _tasks(self) -> tuple[int, int]:
        """The finished tasks, and all tasks, of the active stages."""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        done = sum(stage.numCompletedTasks for stage in known)
        return done, sum(stage.numTasks for stage in known)


def count_messages(query: "StreamingQuery", counts: dict[int, int]) -> Any:
    """Update the number of messages of each batch; returns the last progress, or None."""
    last = query.lastProgress
    if last is not None:
        # All of them only if some were missed: each contains the positions of every stream.
        missed = last["batchId"] > max(counts, default=-1) + 1
        for progress in query.recentProgress if missed else (last,):
            # An idle query reports its next batch, with no rows yet.
            batch = progress["batchId"]
            counts[batch] = max(counts.get(batch, 0), progress["numInputRows"])
    return last


def estimate(finished: int, total: int | None, tasks_done: int, tasks: int) -> int:
    """Messages of finished batches, and a share of the rest by finished tasks."""
    if total is None or not tasks or finished >= total:
        return finished
    return finished + (total - finished) * tasks_done // tasks


@contextmanager
def watching(
    spark: "SparkSession", show: Callable[[int], object], total: int | None
) -> Iterator[Watch]:
    """Call `show` with the number of messages done, from another thread, while the block runs."""
    watch = Watch(spark, total)
    ended = threading.Event()

    def poll() -> None:
        most = 0
        while not ended.wait(_POLL_S):
            # Spark may be stopping.
            with suppress(Exception):
                most = max(most, watch.done())
                show(most)

    thread = threading.Thread(target=poll, name="progress", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join(2 * _POLL_S)
