"""`tailrace pipeline materialize`: JSON objects as a table with typed columns."""

from pathlib import Path

import click

from tailrace.cli.failures import print_error
from tailrace.cli.output import counted, human_bytes, report
from tailrace.cli.parameters import BUCKET
from tailrace.cli.pipeline.backlog import print_plan, table_backlog
from tailrace.cli.pipeline.options import FOLLOWING, SELECTION, TABLE, Job, job_options
from tailrace.cli.pipeline.spark_runner import check_spark

__all__ = ["materialize"]


@click.command()
@click.argument("bucket", type=BUCKET)
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "--dead-letters",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Table for messages that are not JSON objects.  [default: TABLE-dead-letters]",
)
@job_options("materialize", SELECTION, TABLE, FOLLOWING)
def materialize(job: Job, bucket: str, table: Path, dead_letters: Path | None) -> None:
    """
    Add the JSON objects of a bucket to a table, one column per field, each exactly once.

    TABLE is a directory. New fields become new columns. A value that does not fit its column goes
    to the column _rescued. A message that is not a JSON object goes to the dead letters.
    """
    check_spark()
    todo = table_backlog(job, bucket, table)
    rejected = dead_letters or table.with_name(f"{table.name}-dead-letters")
    if job.dry_run:
        format = job.arguments["format"]
        print_plan(todo, f"rows to the {format} table {table}, dead letters to {rejected}")
        return
    done = job.run(
        bucket,
        todo.messages,
        lambda done: done.rows + done.dead_letters,
        bucket=bucket,
        table=table,
        dead_letters=rejected,
    )
    if done.dead_letters:
        print_error(f"{counted(done.dead_letters)} not JSON objects: see {rejected}")
    files = f"{counted(done.files, 'file')}, {human_bytes(done.bytes)}"
    report(f"{bucket}: {counted(done.rows, 'row')} added to {table}: {files}")
