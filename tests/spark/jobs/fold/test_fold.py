"""The job `fold` on Spark."""

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tailrace.client import Client, NotFound
from tailrace.spark.folds import FoldInvalid
from tailrace.spark.jobs.fold import fold
from tailrace.spark.progress import Watch
from tests.spark.jobs.fold_load import LIVING, Load
from tests.support.chance import seeded
from tests.support.server import ServerProcess
from tests.support.together import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

JSON = "application/json"
BUCKET = "orders"


def test_the_whole_job(spark: "SparkSession", server: ServerProcess, client: Client) -> None:
    """A dry run, a fold with failed and skipped streams, and a second run without new data."""
    bucket = client.bucket(BUCKET)
    bucket.create()
    for number in range(40):
        stream = bucket.stream(f"s-{number:02}")
        stream.create(JSON)
        stream.append_json(*({"id": at % 3, "n": at} for at in range(number + 1)))
    bucket.stream("s-07").append_json({"no": "key"})
    bucket.stream("t").create("text/plain")
    bucket.stream("t").append(b"text", "text/plain")
    bucket.stream("other").create(JSON)

    watch = Watch(spark, None)
    arguments = {"url": server.url, "bucket": BUCKET, "fold": "last-write-wins", "key": "id"}
    dry = fold(spark, **arguments, dry_run=True)  # type: ignore[arg-type]
    assert dry.outcomes == {"planned": 40, "skipped": 1}
    assert dry.messages == sum(range(1, 41)) + 1
    assert bucket.stream("s-01").head().snapshot_offset is None

    done = fold(spark, **arguments, watch=watch)  # type: ignore[arg-type]
    assert done.outcomes == {"folded": 39, "failed": 1, "skipped": 1}
    assert done.not_due == 1
    assert done.failures
    (failure,) = done.failures
    assert (failure.stream, failure.code) == ("s-07", "message-refused")
    assert [each.stream for each in done.streams] == sorted(each.stream for each in done.streams)
    assert done.messages == sum(range(1, 41)) - 8
    assert watch.done() == dry.messages
    snapshot = bucket.stream("s-04").snapshot()
    assert snapshot.data == b'[{"id":2,"n":2},{"id":0,"n":3},{"id":1,"n":4}]'
    assert done.bytes_after == sum(each.bytes_after or 0 for each in done.streams)

    again = fold(spark, **arguments, pattern="s-1*")  # type: ignore[arg-type]
    assert (again.streams, again.not_due, again.failures) == ([], 10, [])


def test_thresholds_select_streams(
    spark: "SparkSession", server: ServerProcess, client: Client
) -> None:
    bucket = client.bucket(BUCKET)
    bucket.create()
    for name, count in {"a-few": 3, "a-many": 30, "b-many": 30}.items():
        bucket.stream(name).create(JSON)
        bucket.stream(name).append_json(*({"n": at} for at in range(count)))
    found = fold(
        spark,
        url=server.url,
        bucket=BUCKET,
        fold="merge-patch",
        prefix="a-",
        min_messages=10,
        min_age_s=3600,
    )
    assert [each.stream for each in found.streams] == ["a-many"]
    assert bucket.stream("a-many").snapshot().data == b'{"n":29}'


def test_invalid_parameters_are_refused_before_spark_runs(
    spark: "SparkSession", server: ServerProcess
) -> None:
    with pytest.raises(FoldInvalid):
        fold(spark, url=server.url, bucket=BUCKET, fold="newest")
    with pytest.raises(NotFound):
        fold(spark, url=server.url, bucket="nothing-here", fold="state")


def test_folding_beside_live_writers(spark: "SparkSession", server: ServerProcess) -> None:
    """Every fold, again and again while its streams grow: the naive fold of the full history."""
    with seeded("fold-live") as chance:
        load = Load(server.url, str(chance.random()))
        load.start()
        try:
            for _ in range(2):
                sent = [len(writer.sent) for writer in load.writers]
                for bucket, living in LIVING.items():
                    found = fold(
                        spark, url=server.url, bucket=bucket, fold=living.fold, key=living.key
                    )
                    assert set(found.outcomes) <= {"folded"}, found.failures
                load.check()
                wait_until(partial(load.has_grown, sent))
        finally:
            load.stop()
        for bucket, living in LIVING.items():
            fold(spark, url=server.url, bucket=bucket, fold=living.fold, key=living.key)
        assert set(load.check()) == {0}
