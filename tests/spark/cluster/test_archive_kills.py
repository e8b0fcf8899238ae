"""`archive` with a killed driver: the next run loses and duplicates nothing."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.client import Client
from tailrace.spark.jobs.archive import archive
from tests.spark.jobs.test_archive import BUCKET, bucket, fill, stored
from tests.support.server import REPO_ROOT, ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

__all__ = ["bucket"]  # A fixture.

KILLED = """
import os, signal, sys
from tailrace.spark.jobs.archive import archive
from tailrace.spark.session import new_session

url, table, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
steps = []

def at(step):
    steps.append(step)
    if len(steps) == last:
        sys.stdout.write(step)
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)

spark = new_session("killed", "local[1]", {"spark.driver.memory": "512m"})
archive(spark, url=url, bucket="2026", table=table, max_messages=6, at=at)
"""


@pytest.mark.usefixtures("bucket")
def test_a_killed_driver_loses_and_duplicates_nothing(
    spark: "SparkSession", server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """
    Method: SIGKILL the driver between the table's commit and Spark's own, where a batch that came
    again would be stored twice; then after the journal of a batch and before its files moved.
    What follows each kill starts from the same checkpoint, as a user would.
    """
    table = tmp_path / "table"
    fill(client, 0, 10)
    reached = []
    for last in (6, 9):
        child = subprocess.run(
            [sys.executable, "-c", KILLED, server.url, str(table), str(last)],
            cwd=REPO_ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert child.returncode == -signal.SIGKILL, child.stderr
        reached.append(child.stdout)
    assert reached == ["done", "journaled"]
    result = archive(spark, url=server.url, bucket=BUCKET, table=table, max_messages=6)
    # The third of five batches is completed from its journal: it is not read again.
    assert result.batches == 2
    assert stored(spark, table) == {key: list(range(10)) for key in ("a", "b", "c%d")}
