"""`tailrace pipeline archive`: the messages of a bucket as a table."""

from pathlib import Path

import click

from tailrace.cli.output import counted, human_bytes, report
from tailrace.cli.parameters import BUCKET
from tailrace.cli.pipeline.backlog import print_plan, table_backlog
from tailrace.cli.pipeline.options import FOLLOWING, SELECTION, TABLE, Job, job_options
from tailrace.cli.pipeline.spark_runner import check_spark

__all__ = ["archive"]


@click.command()
@click.argument("bucket", type=BUCKET)
@click.argument("table", type=click.Path(path_type=Path))
@job_options("archive", SELECTION, TABLE, FOLLOWING)
def archive(job: Job, bucket: str, table: Path) -> None:
    """
    Add the messages of a bucket to a table, one row per message, each exactly once.

    TABLE is a directory. The next run continues where this one ends.
    """
    check_spark()
    todo = table_backlog(job, bucket, table)
    if job.dry_run:
        print_plan(todo, f"rows to the {job.arguments['format']} table {table}")
        return
    done = job.run(bucket, todo.messages, lambda done: done.rows, bucket=bucket, table=table)
    files = f"{counted(done.files, 'file')}, {human_bytes(done.bytes)}"
    report(f"{bucket}: {counted(done.rows)} added to {table}: {files}")
