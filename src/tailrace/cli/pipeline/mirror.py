"""`tailrace pipeline mirror`: the streams of a bucket on another server."""

from pathlib import Path

import click

from tailrace.cli.output import counted, report
from tailrace.cli.parameters import BUCKET, HEADER, SERVER_URL, TEXT
from tailrace.cli.pipeline.backlog import job_backlog, print_plan
from tailrace.cli.pipeline.options import (
    FOLLOWING,
    PARTITIONS,
    SELECTION,
    Job,
    job_options,
    target_bucket_option,
)

__all__ = ["mirror"]


@click.command()
@click.argument("bucket", type=BUCKET)
@click.argument("target", type=SERVER_URL)
@click.option(
    "--checkpoint",
    required=True,
    type=TEXT,
    metavar="DIR",
    help="Directory that stores the progress, for the next run to continue.",
)
@target_bucket_option
@click.option(
    "--target-header",
    "target_headers",
    multiple=True,
    type=HEADER,
    metavar="'NAME: VALUE'",
    help="Send this header with every request to the target. Repeatable.",
)
@job_options("mirror", PARTITIONS, SELECTION, FOLLOWING)
def mirror(
    job: Job,
    bucket: str,
    target: str,
    checkpoint: str,
    target_bucket: str,
    target_headers: tuple[tuple[str, str], ...],
) -> None:
    """
    Copy the streams of a bucket to the server TARGET, each message exactly once and in order.

    It ends when all messages are copied that exist at its start. With --every it does not end.
    """
    target_bucket = target_bucket or bucket
    todo = job_backlog(job, bucket, Path(checkpoint))
    copy = f"{target_bucket} at {target}"
    if job.dry_run:
        note = (
            f"not mirrored: messages of {counted(todo.compacted, 'stream')} "
            "that are covered by a snapshot"
        )
        note = note if todo.compacted else ""
        print_plan(todo, f"the same to {copy}, and progress to {checkpoint}", note=note)
        return
    done = job.run(
        bucket,
        todo.messages,
        lambda done: done.messages,
        bucket=bucket,
        target_url=target,
        target_bucket=target_bucket,
        target_headers=dict(target_headers),
        checkpoint=checkpoint,
    )
    closed = f", {counted(done.closed, 'stream')} closed" if done.closed else ""
    report(f"{bucket}: {counted(done.messages)} mirrored to {copy}{closed}")
