"""`tailrace pipeline fold`: the state that messages add up to, as snapshots of their streams."""

from typing import TYPE_CHECKING, Final

import click

from tailrace.cli.connection import Location
from tailrace.cli.failures import Failure, print_error
from tailrace.cli.output import as_json, counted, fields_of, human_bytes, print_lines, report
from tailrace.cli.parameters import BUCKET, SECONDS, TEXT, count_option
from tailrace.cli.pipeline.backlog import Backlog, print_plan
from tailrace.cli.pipeline.options import SELECTION, Job, Options, job_options
from tailrace.cli.pipeline.spark_errors import job_failure
from tailrace.cli.pipeline.spark_runner import check_spark

if TYPE_CHECKING:
    from tailrace.spark.jobs.fold import FoldResult

__all__ = ["fold"]

_ERRORS_MAX: Final = 10

_OPTIONS: Final[Options] = {
    "key": click.option(
        "--key", type=TEXT, metavar="PATH", help="The key for last-write-wins, such as /id or a.b."
    ),
    "min_bytes": count_option("--min-bytes", help="Only streams with this many new bytes."),
    "min_messages": count_option(
        "--min-messages", help="Only streams with this many new messages."
    ),
    "min_age_s": click.option(
        "--min-age",
        "min_age_s",
        type=SECONDS,
        metavar="SECONDS",
        help="Only streams with new messages and a snapshot older than this.",
    ),
    "adopt": click.option(
        "--adopt",
        is_flag=True,
        help="Also continue from snapshots that this fold did not publish.",
    ),
}


@click.command()
@click.argument("bucket", type=BUCKET)
@click.argument("fold", type=TEXT)
@click.option("--json", "is_json", is_flag=True, help="Print a JSON object per stream.")
@job_options("fold", _OPTIONS, SELECTION)
def fold(job: Job, bucket: str, fold: str, is_json: bool) -> None:
    """
    Publish the state of each stream as its snapshot.

    FOLD is last-write-wins, state, merge-patch, concat, or module:function. The server then drops
    the messages that a snapshot covers. A stream needs to meet only one of --min-bytes,
    --min-messages and --min-age.
    """
    check_spark()
    with job.server.bucket(bucket) as found:
        # Fails within seconds; the job itself retries for longer.
        found.info()
    arguments = {**job.arguments, "bucket": bucket, "fold": fold}
    try:
        # Reads listings only, without Spark.
        planned: FoldResult = job.function()(None, **arguments, dry_run=True)
    except Exception as error:
        raise job_failure(error, Location(job.server, "", bucket)) from error
    if job.dry_run:
        _print_plan(planned, bucket, is_json=is_json)
        return
    with job.session(bucket, planned.messages) as (spark, shown):
        from tailrace.spark.progress import watching

        with watching(spark, shown, planned.messages) as watch:
            done: FoldResult = job.function()(spark, **arguments, watch=watch)
        shown(done.messages)
    _print_result(done, bucket, is_json=is_json)


def _print_plan(planned: "FoldResult", bucket: str, *, is_json: bool) -> None:
    if is_json:
        _print_streams(planned)
        return
    due = planned.outcomes.get("planned", 0)
    reads = Backlog(bucket, due, planned.messages, planned.bytes_before)
    note = f"{counted(planned.not_due, 'stream')} not due" if planned.not_due else ""
    print_plan(reads, f"{counted(due, 'snapshot')} to {bucket}", note=note)


def _print_streams(done: "FoldResult") -> None:
    print_lines(*(as_json(fields_of(stream)) for stream in done.streams))


def _print_result(done: "FoldResult", bucket: str, *, is_json: bool) -> None:
    """Print the outcome of each stream; a `Failure` if some could not be folded."""
    if is_json:
        _print_streams(done)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(done.outcomes.items()))
    sizes = f"{human_bytes(done.bytes_before)} became {human_bytes(done.bytes_after)}"
    report(f"{bucket}: {counts or 'nothing was due'}; {counted(done.messages)}, {sizes}")
    for stream in done.failures[:_ERRORS_MAX]:
        print_error(f"{stream.stream}: {stream.error or stream.code} (at {stream.offset})")
    if done.failures:
        raise Failure(f"{bucket}: {counted(len(done.failures), 'stream')} could not be folded")
