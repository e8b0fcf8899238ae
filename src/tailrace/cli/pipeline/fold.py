"""`tailrace pipeline fold`: what messages add up to, as the streams' snapshots."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import click

from tailrace.cli.connection import Server, server_options
from tailrace.cli.failures import Failure, show
from tailrace.cli.output import Output, counted, fields_of, human_bytes, report
from tailrace.cli.parameters import BUCKET, SECONDS, TEXT
from tailrace.cli.pipeline.backlog import Backlog, show_plan
from tailrace.cli.pipeline.bar import shown_messages
from tailrace.cli.pipeline.options import dry_run_option, selection_options
from tailrace.cli.pipeline.spark_errors import failure_of
from tailrace.cli.pipeline.spark_runner import Engine, check_libraries, engine_options
from tailrace.cli.progress import progress_option

if TYPE_CHECKING:
    from tailrace.spark.jobs.fold import FoldResult

__all__ = ["fold"]

_TOLD_MAX: Final = 10


@click.command()
@click.argument("bucket", type=BUCKET)
@click.argument("fold", type=TEXT)
@server_options
@selection_options
@click.option("--key", type=TEXT, metavar="PATH", help="The key of last-write-wins, as /id or a.b.")
@click.option(
    "--min-bytes", type=click.IntRange(min=1), metavar="N", help="Only streams with so much new."
)
@click.option(
    "--min-messages",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only streams with so many new messages.",
)
@click.option(
    "--min-age",
    type=SECONDS,
    metavar="SECONDS",
    help="Only streams with something new and a snapshot that is older.",
)
@click.option(
    "--adopt", is_flag=True, help="Continue from snapshots that something else has made, too."
)
@click.option("--json", "is_json", is_flag=True, help="Each stream as an object on a line.")
@engine_options
@dry_run_option
@progress_option
def fold(
    bucket: str,
    fold: str,
    server: Server,
    prefix: str,
    pattern: str | None,
    key: str | None,
    min_bytes: int | None,
    min_messages: int | None,
    min_age: float | None,
    adopt: bool,
    is_json: bool,
    engine: Engine,
    dry_run: bool,
    progress: bool | None,
) -> None:
    """
    Publish what the messages of each stream add up to as its snapshot.

    FOLD is last-write-wins, state, merge-patch, concat, or module:function. The server then drops
    the messages that a snapshot covers. Of --min-bytes, --min-messages and --min-age one that is
    met is enough.
    """
    check_libraries()
    from tailrace.spark.jobs.fold import fold as job

    run = partial(
        job,
        url=server.url,
        bucket=bucket,
        fold=fold,
        key=key,
        prefix=prefix,
        pattern=pattern,
        min_bytes=min_bytes,
        min_messages=min_messages,
        min_age_s=min_age,
        adopt=adopt,
        headers=server.headers,
        timeout_s=server.timeout_s,
    )
    with server.bucket(bucket) as there:
        # The job itself is more patient.
        there.info()
    planned = _plan(run, bucket)
    if dry_run:
        _show_dry_run(planned, bucket, is_json=is_json)
        return
    with (
        shown_messages("fold", planned.messages, progress) as told,
        engine.running("fold", bucket) as spark,
    ):
        from tailrace.spark.progress import watching

        with watching(spark, told, planned.messages) as watch:
            done = run(spark, watch=watch)
        told(done.messages)
    _show(done, bucket, is_json=is_json)


def _plan(run: "partial[FoldResult]", bucket: str) -> "FoldResult":
    """What is due; only a listing is read for it, without Spark."""
    try:
        return run(cast("Any", None), dry_run=True)
    except Exception as error:
        raise failure_of(error, bucket) from error


def _show_dry_run(planned: "FoldResult", bucket: str, *, is_json: bool) -> None:
    if is_json:
        _show_streams(planned)
        return
    due = planned.outcomes.get("planned", 0)
    found = Backlog(bucket, due, planned.messages, planned.bytes_before)
    note = f"{counted(planned.not_due, 'stream')} not due" if planned.not_due else ""
    show_plan(found, f"{counted(due, 'snapshot')} to {bucket}", note=note)


def _show_streams(done: "FoldResult") -> None:
    output = Output()
    for stream in done.streams:
        output.json(fields_of(stream))
    output.flush()


def _show(done: "FoldResult", bucket: str, *, is_json: bool) -> None:
    """
    Say what became of the streams.

    Raises:
        Failure: Some could not be folded.
    """
    if is_json:
        _show_streams(done)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(done.outcomes.items()))
    sizes = f"{human_bytes(done.bytes_before)} are now {human_bytes(done.bytes_after)}"
    report(f"{bucket}: {counts or 'nothing was due'}; {counted(done.messages)}, {sizes}")
    for stream in done.failures[:_TOLD_MAX]:
        show(f"{stream.stream}: {stream.error or stream.code} (at {stream.offset})")
    if done.failures:
        raise Failure(f"{bucket}: {counted(len(done.failures), 'stream')} could not be folded")
