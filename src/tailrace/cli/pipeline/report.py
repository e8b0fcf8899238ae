"""`tailrace pipeline report`: what is in buckets, in numbers and as a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tailrace.cli.connection import Server, server_options
from tailrace.cli.files import write_whole
from tailrace.cli.output import Output, age, human_bytes, table
from tailrace.cli.output import report as tell_done
from tailrace.cli.pipeline.bar import shown_messages
from tailrace.cli.pipeline.engine import Engine, engine_options
from tailrace.cli.pipeline.options import dry_run_option, selection_options
from tailrace.cli.pipeline.plan import show_plan, survey
from tailrace.cli.progress import progress_option
from tailrace.cli.words import BUCKET, TEXT

if TYPE_CHECKING:
    from tailrace.spark.jobs.report_values import Report, Summary

__all__ = ["report"]

_TITLES: Final = (
    "NAME", "STREAMS", "MESSAGES", "BYTES", "PER S", "P50", "P95", "MAX", "PRODUCERS", "SAVED",
    "FOLD SAVES", "LAST WRITE",
)  # fmt: skip


@click.command()
@click.argument("buckets", metavar="BUCKET...", nargs=-1, required=True, type=BUCKET)
@server_options
@selection_options
@click.option(
    "--key",
    type=TEXT,
    metavar="PATH",
    help="Also say what keeping the last message of each key would save; reads contents.",
)
@click.option(
    "--by",
    "period",
    type=click.Choice(["hour", "day"]),
    help="Growth by this.  [default: hour for up to three days]",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Print so many streams of a bucket, the largest.",
)
@click.option("--json", "is_json", is_flag=True, help="Each bucket and stream as an object.")
@click.option(
    "--html",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a page with charts to this file.",
)
@engine_options
@dry_run_option
@progress_option
def report(
    buckets: tuple[str, ...],
    server: Server,
    prefix: str,
    pattern: str | None,
    key: str | None,
    period: str | None,
    top: int,
    is_json: bool,
    file: Path | None,
    engine: Engine,
    dry_run: bool,
    progress: bool | None,
) -> None:
    """
    Print what buckets hold: messages, bytes, rates, sizes, producers, growth.

    Contents stay on the server, unless there is a --key to look for in them.
    """
    buckets = tuple(dict.fromkeys(buckets))
    reads = [survey(server, bucket, prefix, pattern) for bucket in buckets]
    if dry_run:
        show_plan(reads, f"a page to {file}" if file else "nothing", is_json=is_json)
        return
    total = sum(each.messages or 0 for each in reads)
    with (
        shown_messages("report", total, progress) as told,
        engine.running("report", ", ".join(buckets)) as spark,
    ):
        from tailrace.spark.jobs.report import report as run
        from tailrace.spark.progress import watching

        with watching(spark, told, total) as watch:
            made = run(
                spark,
                url=server.url,
                buckets=buckets,
                prefix=prefix,
                pattern=pattern,
                key=key,
                period=period,
                headers=server.headers,
                timeout_s=server.timeout_s,
                watch=watch,
            )
        told(sum(each.messages for each in made.buckets))
    _print(made, top, is_json=is_json)
    if file is not None:
        from tailrace.spark.jobs.report_page import page

        write_whole(file, page(made).encode())
        tell_done(f"the page is in {file}")


def _print(made: "Report", top: int, *, is_json: bool) -> None:
    output = Output()
    if is_json:
        for summary in (*made.buckets, *made.streams):
            output.json(summary.fields())
    else:
        for line in table(_rows(made, top), [0] * len(_TITLES)):
            output.line(line.encode())
    output.flush()


def _rows(made: "Report", top: int) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [_TITLES]
    for bucket in made.buckets:
        rows.append(_row(bucket))
        streams = [each for each in made.streams if each.bucket == bucket.bucket]
        largest = sorted(streams, key=lambda each: -(each.bytes + each.compaction.bytes))
        rows += map(_row, largest[:top])
        if len(streams) > top:
            rest = (f"… {len(streams) - top:,} more: --top N, --json", *[""] * (len(_TITLES) - 1))
            rows.append(rest)
    return rows


def _row(each: "Summary") -> tuple[str, ...]:
    return (
        each.name,
        f"{each.streams:,}" if each.stream is None else "",
        f"{each.messages:,}" if each.error is None else f"? {each.error}",
        human_bytes(each.bytes),
        ""
        if each.rate_per_s is None
        else f"{each.rate_per_s:,.{0 if each.rate_per_s > 10 else 3}f}",
        *(human_bytes(size) for size in (each.sizes.p50, each.sizes.p95, each.sizes.max)),
        f"{each.producers:,}",
        human_bytes(each.compaction.saved),
        "" if each.fold is None else human_bytes(each.fold.saved),
        "" if each.last_ms is None else age(each.last_ms),
    )
