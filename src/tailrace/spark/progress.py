"""
How far Spark's work is, in messages: what a terminal shows while it waits.

Rule 1: what is told comes from Spark (finished micro-batches, finished tasks) and is never waited
for: work that cannot be watched goes on all the same.

Rule 2: messages of a micro-batch that runs count by the share of its tasks that are done, of what
is left to do: an estimate, which the finished batch replaces.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Told", "Watch", "estimate", "watching"]

_LOOK_EVERY_S: Final = 0.5

Told = Callable[[int], object]
"""Is told how many messages are done, now and then, from a thread of its own."""


class Watch:
    """Counts the messages of every streaming query that runs, and the tasks of the rest."""

    def __init__(self, spark: "SparkSession", total: int | None) -> None:
        self._spark = spark
        self._total = total
        self._batches: dict[tuple[str, int], int] = {}
        self._tally: Callable[[], int] | None = None

    def count_by(self, tally: Callable[[], int]) -> None:
        """A job that knows by itself how many messages are done."""
        self._tally = tally

    def done(self) -> int:
        """So many messages, as far as is known now."""
        if self._tally is not None:
            return self._tally()
        for query in self._spark.streams.active:
            self._look(query)
        finished = sum(self._batches.values())
        return estimate(finished, self._total, *self._tasks())

    def _look(self, query: "StreamingQuery") -> None:
        last = query.lastProgress
        if last is None:
            return
        before = [batch for run, batch in self._batches if run == last["runId"]]
        # All of them only where some were missed: each holds the marks of every stream.
        missed = last["batchId"] > max(before, default=last["batchId"] - 1) + 1
        for each in query.recentProgress if missed else (last,):
            key = each["runId"], each["batchId"]
            self._batches[key] = max(self._batches.get(key, 0), each["numInputRows"])

    def _tasks(self) -> tuple[int, int]:
        """How many tasks of the stages that run now are done, of how many."""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        done = sum(stage.numCompletedTasks for stage in known)
        return done, sum(stage.numTasks for stage in known)


def estimate(finished: int, total: int | None, tasks_done: int, tasks: int) -> int:
    """Messages of finished batches, and a share of the rest by the tasks that are done."""
    if total is None or not tasks or finished >= total:
        return finished
    return finished + (total - finished) * tasks_done // tasks


@contextmanager
def watching(spark: "SparkSession", told: Told, total: int | None) -> Iterator[Watch]:
    """Tell how far it is while the block runs."""
    watch = Watch(spark, total)
    ended = threading.Event()

    def look() -> None:
        most = 0
        while not ended.wait(_LOOK_EVERY_S):
            # Spark may be on its way out.
            with suppress(Exception):
                most = max(most, watch.done())
                told(most)

    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join(2 * _LOOK_EVERY_S)
