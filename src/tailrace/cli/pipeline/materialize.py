"""`tailrace pipeline materialize`: streams of JSON objects as a typed table."""

from pathlib import Path
from typing import Any

import click

from tailrace.cli.connection import Server, server_options
from tailrace.cli.failures import show
from tailrace.cli.output import counted, human_bytes, report
from tailrace.cli.parameters import BUCKET
from tailrace.cli.pipeline.archive import checkpoint_option, compact_option, to_archive
from tailrace.cli.pipeline.backlog import show_plan
from tailrace.cli.pipeline.bar import shown_messages
from tailrace.cli.pipeline.options import (
    dry_run_option,
    following_options,
    format_option,
    selection_options,
)
from tailrace.cli.pipeline.spark_runner import Engine, check_libraries, engine_options
from tailrace.cli.progress import progress_option

__all__ = ["materialize"]


@click.command()
@click.argument("bucket", type=BUCKET)
@click.argument("table", type=click.Path(path_type=Path))
@server_options
@selection_options
@format_option
@click.option(
    "--dead-letters",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The table of what is no JSON object.  [default: TABLE-dead-letters]",
)
@checkpoint_option
@compact_option
@following_options
@engine_options
@dry_run_option
@progress_option
def materialize(
    bucket: str,
    table: Path,
    server: Server,
    prefix: str,
    pattern: str | None,
    format: str,
    dead_letters: Path | None,
    checkpoint: str | None,
    compact_files: int | None,
    every: float | None,
    max_messages: int | None,
    ignore_data_loss: bool,
    engine: Engine,
    dry_run: bool,
    progress: bool | None,
) -> None:
    """
    Add the JSON objects of a bucket to a table with a column for each field, each once.

    TABLE is a directory. Columns come with the fields, and stay. What fits no column is kept in
    _rescued, what is no JSON object in the table of dead letters.
    """
    check_libraries()
    todo = to_archive(server, bucket, prefix, pattern, table, checkpoint)
    beside = dead_letters or table.with_name(f"{table.name}-dead-letters")
    if dry_run:
        show_plan(todo, f"rows to the {format} table {table}, dead letters to {beside}")
        return
    total = None if every else todo.messages
    more: dict[str, Any] = {} if compact_files is None else {"compact_files": compact_files}
    with (
        shown_messages("materialize", total, progress) as told,
        engine.running("materialize", bucket) as spark,
    ):
        from tailrace.spark.jobs.materialize import materialize as run
        from tailrace.spark.progress import watching

        with watching(spark, told, total):
            done = run(
                spark,
                url=server.url,
                table=table,
                bucket=bucket,
                dead_letters=beside,
                prefix=prefix,
                pattern=pattern,
                format=format,
                checkpoint=checkpoint,
                every_s=every,
                max_messages=max_messages,
                fail_on_data_loss=not ignore_data_loss,
                headers=server.headers,
                timeout_s=server.timeout_s,
                **more,
            )
        told(done.rows + done.dead_letters)
    if done.dead_letters:
        show(f"{counted(done.dead_letters)} are no JSON objects: see {beside}")
    files = f"{counted(done.files, 'file')}, {human_bytes(done.bytes)}"
    report(f"{bucket}: {counted(done.rows, 'row')} added to {table}: {files}")
