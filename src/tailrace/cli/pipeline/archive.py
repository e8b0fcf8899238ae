"""`tailrace pipeline archive`: the messages of a bucket as a table."""

from pathlib import Path
from typing import Any

import click

from tailrace.cli.connection import Server, server_options
from tailrace.cli.output import counted, human_bytes, report
from tailrace.cli.pipeline.bar import shown_messages
from tailrace.cli.pipeline.engine import Engine, check_libraries, engine_options
from tailrace.cli.pipeline.options import (
    dry_run_option,
    following_options,
    format_option,
    selection_options,
)
from tailrace.cli.pipeline.plan import Backlog, marks_of, show_plan, survey
from tailrace.cli.progress import progress_option
from tailrace.cli.words import BUCKET, TEXT

__all__ = ["archive", "checkpoint_option", "compact_option", "to_archive"]

checkpoint_option = click.option(
    "--checkpoint",
    type=TEXT,
    metavar="DIR",
    help="Keeps how far it is.  [default: in the table's directory]",
)

compact_option = click.option(
    "--compact-files",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write small files together where a day has so many; 0: never.",
)


@click.command()
@click.argument("bucket", type=BUCKET)
@click.argument("table", type=click.Path(path_type=Path))
@server_options
@selection_options
@format_option
@checkpoint_option
@compact_option
@following_options
@engine_options
@dry_run_option
@progress_option
def archive(
    bucket: str,
    table: Path,
    server: Server,
    prefix: str,
    pattern: str | None,
    format: str,
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
    Add the messages of a bucket to a table, one row each, each once.

    TABLE is a directory. The next run goes on where this one ended.
    """
    check_libraries()
    todo = to_archive(server, bucket, prefix, pattern, table, checkpoint)
    if dry_run:
        show_plan([todo], f"rows to the {format} table {table}")
        return
    total = None if every else todo.messages
    more: dict[str, Any] = {} if compact_files is None else {"compact_files": compact_files}
    with (
        shown_messages("archive", total, progress) as told,
        engine.running("archive", bucket) as spark,
    ):
        from tailrace.spark.jobs.archive import archive as run
        from tailrace.spark.progress import watching

        with watching(spark, told, total):
            done = run(
                spark,
                url=server.url,
                table=table,
                bucket=bucket,
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
        told(done.rows)
    files = f"{counted(done.files, 'file')}, {human_bytes(done.bytes)}"
    report(f"{bucket}: {counted(done.rows)} added to {table}: {files}")


def to_archive(
    server: Server,
    bucket: str,
    prefix: str,
    pattern: str | None,
    table: Path,
    checkpoint: str | None,
) -> Backlog:
    """What a table does not have yet."""
    from tailrace.spark.jobs.stream_selection import StreamSelection
    from tailrace.spark.jobs.stream_to_table import default_checkpoint

    chosen = StreamSelection(url=server.url, bucket=bucket, prefix=prefix, pattern=pattern)
    where = Path(checkpoint) if checkpoint else default_checkpoint(table, chosen)
    return survey(server, bucket, prefix, pattern, marks_of(where))
