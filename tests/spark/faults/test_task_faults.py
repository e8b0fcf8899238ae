"""Failing tasks, killed workers and aborted batches, inside one driver."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException

from tailrace.client import Client, Stream
from tests.spark.faults.pipeline import TARGET, Pipeline, Source, gaps, stored, total, whole
from tests.spark.faults.processes import kill_workers
from tests.support.chance import seeded
from tests.support.streams import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

Batches = Iterator[Any]
KILLS = 4
BATCH = 2000


@pytest.fixture
def small_batches(spark: "SparkSession") -> Iterator[None]:
    """Rows go from process to process a few at a time, in more bytes than their pipes hold."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, "4")
    yield
    spark.conf.unset(name)


def failing(url: str, note: Path, attempts: int) -> Callable[[Batches], Batches]:
    """
    Passes rows on, and fails in the first attempts at a task, when some of its rows are stored.

    How many then are goes into a file. Made here, it goes to the workers by its value.
    """

    def stored_of_batch(stream: Stream) -> int:
        return int(stream.head().next_offset.split("_")[0]) % BATCH

    def run(batches: Batches) -> Batches:
        context = TaskContext.get()
        fails = context is not None and context.attemptNumber() < attempts
        rows = 0
        for batch in batches:
            yield batch
            rows += batch.num_rows
            if fails and rows >= BATCH - 50:
                with Client(url) as client, note.open("a") as notes:
                    stream = client.bucket(TARGET).stream("s0")
                    wait_until("rows are stored", partial(stored_of_batch, stream))
                    notes.write(f"{stored_of_batch(stream)}\n")
                raise RuntimeError("this attempt fails on purpose")

    return run


@pytest.mark.usefixtures("small_batches")
def test_tasks_that_fail_after_they_have_sent(
    spark: "SparkSession", client: Client, sink: Client, pipeline: Pipeline, tmp_path: Path
) -> None:
    """A first and a second attempt store part of a batch; the third completes it."""
    source = Source(client, streams=1)
    source.add(2 * BATCH)
    sink.bucket(TARGET).create()
    sink.bucket(TARGET).stream("s0").create("application/json")
    pipeline.shuffle, pipeline.limit = "none", BATCH
    pipeline.options = {"maxRequestBytes": "200"}
    run = failing(pipeline.target_url, tmp_path / "note", attempts=2)
    rows = pipeline.shaped(pipeline.read(spark)).mapInArrow(run, "value string")
    query = pipeline.start(rows)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    noted = list(map(int, (tmp_path / "note").read_text().split()))
    assert len(noted) == 4, "two attempts at each of two batches"
    assert all(noted)
    assert not gaps(stored(sink), source.count)
    assert stored(sink) == source.all


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("options", [{"orderBy": "n"}, {"orderBy": "", "maxRequestBytes": ""}])
def test_truncated_rows_are_not_sent(
    spark: "SparkSession", client: Client, sink: Client, pipeline: Pipeline, options: dict[str, str]
) -> None:
    """
    What comes before the sink fails when the sink has most rows: it must not send these alone.

    To the sink, the end of rows looks the same as when a task is through. It would sort what it
    has, or put it into one request, and the next attempt would be taken for a repetition of that.
    """
    source = Source(client, streams=1)
    source.add(BATCH)

    def run(batches: Batches) -> Batches:
        context = TaskContext.get()
        fails = context is not None and context.attemptNumber() < 2
        rows = 0
        for batch in batches:
            yield batch
            rows += batch.num_rows
            if fails and rows >= BATCH - 50:
                raise RuntimeError("this attempt fails on purpose")

    pipeline.limit, pipeline.options = BATCH, {"stream": "s0", **options}
    rows = pipeline.shaped(pipeline.read(spark)).drop("stream").repartition(1)
    query = pipeline.start(rows.mapInArrow(run, "value string, n long"))
    try:
        query.awaitTermination()
    finally:
        query.stop()
    assert {name: sorted(numbers) for name, numbers in stored(sink).items()} == source.all


@pytest.mark.usefixtures("small_batches")
def test_an_aborted_batch_is_completed_by_a_rerun(
    spark: "SparkSession", client: Client, sink: Client, pipeline: Pipeline, tmp_path: Path
) -> None:
    """All four attempts fail and Spark aborts the batch. What it stored stays, and is completed."""
    source = Source(client, streams=1)
    source.add(BATCH + 500)
    sink.bucket(TARGET).create()
    sink.bucket(TARGET).stream("s0").create("application/json")
    pipeline.shuffle, pipeline.limit = "none", BATCH
    pipeline.options = {"maxRequestBytes": "200"}
    run = failing(pipeline.target_url, tmp_path / "note", attempts=4)
    rows = pipeline.shaped(pipeline.read(spark)).mapInArrow(run, "value string")
    query = pipeline.start(rows)
    with pytest.raises(StreamingQueryException, match="fails on purpose"):
        query.awaitTermination()
    assert 0 < total(sink) < BATCH
    assert whole(stored(sink))
    pipeline.run(spark)
    assert stored(sink) == source.all


@pytest.mark.parametrize("shuffle", ["stream", "state"])
def test_workers_that_are_killed(
    spark: "SparkSession", source: Source, sink: Client, pipeline: Pipeline, shuffle: str
) -> None:
    """SIGKILL to every Python worker of this driver, at moments when rows come out."""
    source.add(120)
    pipeline.shuffle = shuffle
    query = pipeline.start(pipeline.shaped(pipeline.read(spark)))
    killed = 0
    try:
        with seeded("worker-kills", shuffle) as chance:
            for _ in range(KILLS):
                bound = min(total(sink) + chance.randrange(1, 120), source.total - 20)
                wait_until("rows", lambda bound=bound: total(sink) >= bound, 60)
                killed += kill_workers(os.getpid())
            query.awaitTermination()
    finally:
        query.stop()
    assert killed
    assert stored(sink) == source.all
