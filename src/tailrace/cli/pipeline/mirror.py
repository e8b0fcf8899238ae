"""`tailrace pipeline mirror`: the streams of a bucket on another server."""

from pathlib import Path

import click

from tailrace.cli.connection import Server, check_headers, check_server_url, server_options
from tailrace.cli.output import counted, report
from tailrace.cli.parameters import BUCKET, TEXT
from tailrace.cli.pipeline.backlog import marks_of, show_plan, survey
from tailrace.cli.pipeline.bar import shown_messages
from tailrace.cli.pipeline.options import (
    dry_run_option,
    following_options,
    selection_options,
)
from tailrace.cli.pipeline.spark_runner import Engine, engine_options
from tailrace.cli.progress import progress_option

__all__ = ["mirror"]


@click.command()
@click.argument("bucket", type=BUCKET)
@click.argument("target", type=TEXT, callback=check_server_url)
@server_options
@selection_options
@click.option(
    "--checkpoint",
    required=True,
    type=TEXT,
    metavar="DIR",
    help="Keeps how far it is: the next run goes on from there.",
)
@click.option(
    "--target-bucket",
    default="",
    type=BUCKET,
    metavar="BUCKET",
    help="Where streams go.  [default: a bucket of the same name]",
)
@click.option(
    "--target-header",
    "target_headers",
    multiple=True,
    callback=check_headers,
    metavar="'NAME: VALUE'",
    help="A header for every request to the target.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Write with so many producers.  [default: 8, or as before]",
)
@following_options
@engine_options
@dry_run_option
@progress_option
def mirror(
    bucket: str,
    target: str,
    server: Server,
    prefix: str,
    pattern: str | None,
    checkpoint: str,
    target_bucket: str,
    target_headers: dict[str, str],
    partitions: int | None,
    max_messages: int | None,
    ignore_data_loss: bool,
    every: float | None,
    engine: Engine,
    dry_run: bool,
    progress: bool | None,
) -> None:
    """
    Bring the streams of a bucket to the server TARGET, each message once and in order.

    It ends when everything is there that was at its start; with --every it goes on.
    """
    target_bucket = target_bucket or bucket
    todo = survey(server, bucket, prefix, pattern, marks_of(Path(checkpoint)))
    place = f"{target_bucket} at {target}"
    note = ""
    if todo.compacted:
        note = (
            f"not mirrored: what lies before the first message of "
            f"{counted(todo.compacted, 'stream')}, which a snapshot covers"
        )
    if dry_run:
        show_plan(todo, f"the same to {place}, and {checkpoint}", note=note)
        return
    total = None if every else todo.messages
    with (
        shown_messages("mirror", total, progress) as told,
        engine.running("mirror", bucket) as spark,
    ):
        from tailrace.spark.jobs.mirror import mirror as run
        from tailrace.spark.progress import watching

        with watching(spark, told, total):
            done = run(
                spark,
                url=server.url,
                target_url=target,
                checkpoint=checkpoint,
                bucket=bucket,
                target_bucket=target_bucket,
                prefix=prefix,
                pattern=pattern,
                partitions=partitions,
                every_s=every,
                max_messages=max_messages,
                fail_on_data_loss=not ignore_data_loss,
                headers=server.headers,
                target_headers=target_headers,
                timeout_s=server.timeout_s,
            )
        told(done.messages)
    closed = f", {counted(done.closed, 'stream')} closed" if done.closed else ""
    report(f"{bucket}: {counted(done.messages)} mirrored to {place}{closed}")
