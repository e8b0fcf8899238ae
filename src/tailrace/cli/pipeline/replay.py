"""`tailrace pipeline replay`: an archived table as streams again."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.output import counted, report
from tailrace.cli.parameters import HEADER_TEXT, TEXT
from tailrace.cli.pipeline.backlog import Backlog, print_plan
from tailrace.cli.pipeline.options import (
    FORMAT,
    PARTITIONS,
    Job,
    Options,
    job_options,
    target_bucket_option,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["replay"]

_OPTIONS: Final[Options] = {
    "replay_id": click.option(
        "--id",
        "replay_id",
        required=True,
        type=HEADER_TEXT,
        metavar="ID",
        help="Identifies the replay: messages sent under it are never stored twice.",
    ),
    "where": click.option(
        "--where", type=TEXT, metavar="SQL", help="Only rows that meet this condition."
    ),
    "ttl_s": click.option(
        "--ttl",
        "ttl_s",
        type=click.IntRange(min=1),
        metavar="SECONDS",
        help="New streams expire after this time.",
    ),
}


@click.command()
@click.argument("table", type=click.Path(path_type=Path))
@target_bucket_option
@job_options("replay", _OPTIONS, FORMAT, PARTITIONS)
def replay(job: Job, table: Path, target_bucket: str) -> None:
    """
    Send the rows of an archived table to streams, each exactly once and in order.

    A run that was interrupted is completed by the next one with the same --id.
    """
    url = job.server.url
    with job.session(str(table)) as (spark, shown):
        todo = _rows(spark, job, table)
        if job.dry_run:
            replay_id = job.arguments["replay_id"]
            buckets = target_bucket or "the same buckets"
            print_plan(todo, f"to {buckets} at {url} what replay {replay_id} has not sent yet")
            return
        shown.total = todo.messages
        bucket = target_bucket or None
        done = job.run_in(spark, shown, lambda done: done.messages, table=table, bucket=bucket)
    streams = counted(done.streams, "stream")
    report(f"{table}: {counted(done.messages)} of {streams} sent to {url}")


def _rows(spark: "SparkSession", job: Job, table: Path) -> Backlog:
    """The streams, messages and bytes in the table."""
    from pyspark.sql import functions as F

    from tailrace.spark.jobs.archive import PARTITION_BY
    from tailrace.spark.tables import open_table

    found = open_table(job.arguments["format"], table, partition_by=PARTITION_BY, create=False)
    if found.schema() is None:
        return Backlog(str(table))
    rows = found.read(spark)
    if where := job.arguments.get("where"):
        rows = rows.where(where)
    counts: Any = rows.agg(
        F.countDistinct(F.struct("bucket", "stream")), F.count("*"), F.sum(F.length("value"))
    ).first()
    return Backlog(str(table), counts[0], counts[1], counts[2] or 0)
