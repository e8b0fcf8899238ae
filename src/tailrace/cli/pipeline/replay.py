"""`tailrace pipeline replay`: a table that was archived, as streams again."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailrace.cli.connection import Server, server_options
from tailrace.cli.output import counted, report
from tailrace.cli.parameters import BUCKET, HEADER_TEXT, TEXT
from tailrace.cli.pipeline.backlog import Backlog, show_plan
from tailrace.cli.pipeline.bar import shown_messages
from tailrace.cli.pipeline.options import dry_run_option, format_option
from tailrace.cli.pipeline.spark_runner import Engine, engine_options
from tailrace.cli.progress import progress_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["replay"]


@click.command()
@click.argument("table", type=click.Path(path_type=Path))
@server_options
@click.option(
    "--id",
    "replay_id",
    required=True,
    type=HEADER_TEXT,
    metavar="ID",
    help="Names the replay: what was sent under it is never stored again.",
)
@format_option
@click.option(
    "--target-bucket",
    default="",
    type=BUCKET,
    metavar="BUCKET",
    help="Where all streams go.  [default: as the table says]",
)
@click.option("--where", type=TEXT, metavar="SQL", help="Only rows for which this is true.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Write with so many producers.  [default: 8, or as before]",
)
@click.option(
    "--ttl",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Streams that are made end so long after now.",
)
@engine_options
@dry_run_option
@progress_option
def replay(
    table: Path,
    server: Server,
    replay_id: str,
    format: str,
    target_bucket: str,
    where: str | None,
    partitions: int | None,
    ttl: int | None,
    engine: Engine,
    dry_run: bool,
    progress: bool | None,
) -> None:
    """
    Send the rows of a table that was archived to streams, each once and in order.

    A run that was interrupted is completed by the next one with the same --id.
    """
    with (
        shown_messages("replay", None, False if dry_run else progress) as told,
        engine.running("replay", str(table)) as spark,
    ):
        if dry_run:
            found = _rows(spark, table, format, where)
            place = f"{target_bucket or 'the same buckets'} at {server.url}"
            show_plan(found, f"to {place} what replay {replay_id} has not sent yet")
            return
        from tailrace.spark.jobs.replay import replay as run
        from tailrace.spark.progress import watching

        told.total = _rows(spark, table, format, where).messages
        with watching(spark, told, told.total):
            done = run(
                spark,
                table=table,
                url=server.url,
                replay_id=replay_id,
                format=format,
                bucket=target_bucket or None,
                where=where,
                partitions=partitions,
                ttl_s=ttl,
                headers=server.headers,
                timeout_s=server.timeout_s,
            )
        told(done.messages)
    streams = counted(done.streams, "stream")
    report(f"{table}: {counted(done.messages)} of {streams} sent to {server.url}")


def _rows(spark: "SparkSession", table: Path, format: str, where: str | None) -> Backlog:
    """What the table has."""
    from pyspark.sql import functions as F

    from tailrace.spark.jobs.archive import PARTITION_BY
    from tailrace.spark.tables import open_table

    found = open_table(format, table, partition_by=PARTITION_BY, create=False)
    if found.schema() is None:
        return Backlog(str(table), 0, 0, 0)
    rows = found.read(spark)
    if where is not None:
        rows = rows.where(where)
    counts: Any = rows.agg(
        F.countDistinct(F.struct("bucket", "stream")), F.count("*"), F.sum(F.length("value"))
    ).first()
    return Backlog(str(table), counts[0], counts[1], counts[2] or 0)
