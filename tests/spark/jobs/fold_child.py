"""
A process that folds all buckets of `fold_load` again and again, to be killed.

    python -m tests.spark.jobs.fold_child {task|spark} {url}

It prints a line of JSON for each stream, as soon as that is through.
"""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict

from tailrace.spark.connection import connect
from tailrace.spark.folds import FoldSpec
from tailrace.spark.jobs.fold import fold
from tailrace.spark.jobs.fold.plan import DuePolicy, plan
from tailrace.spark.jobs.fold.results import StreamFold
from tailrace.spark.jobs.fold.task import FoldTask
from tailrace.spark.options import ConnectionOptions
from tailrace.spark.session import new_session
from tests.spark.jobs.fold_load import LIVING


def tell(results: Iterable[StreamFold]) -> None:
    for result in results:
        os.write(1, json.dumps(asdict(result)).encode() + b"\n")


def run_tasks(url: str) -> None:
    """What tasks do, without Spark."""
    with connect(ConnectionOptions(url=url, headers={})) as client:
        while True:
            for bucket, living in LIVING.items():
                spec = FoldSpec.of(living.fold, living.key)
                due = plan(client.bucket(bucket), bucket, spec, DuePolicy(), 0).due
                tell(FoldTask(spec).fold_streams(client, due))


def run_spark(url: str) -> None:
    spark = new_session("folds", "local[2]", {"spark.driver.memory": "512m"})
    while True:
        for bucket, living in LIVING.items():
            found = fold(spark, url=url, bucket=bucket, fold=living.fold, key=living.key)
            tell(found.streams)


if __name__ == "__main__":
    {"task": run_tasks, "spark": run_spark}[sys.argv[1]](sys.argv[2])
