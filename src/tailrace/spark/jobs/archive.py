"""
`archive`: the messages of a bucket as a table, one row each, exactly once.

Columns: bucket, stream, message, offset, next_offset, time, content_type, value, and day, the UTC
date of `time`. Partitioned by bucket and day. Only messages are archived: not empty streams, the
closing of streams, snapshots or lifetimes.
"""

from typing import TYPE_CHECKING, Final

from tailrace.spark.jobs.parameters import takes
from tailrace.spark.jobs.stream_to_table import MicroBatch, TableJob, TableJobResult, TableRun
from tailrace.spark.tables import Committed, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["COLUMNS", "PARTITION_BY", "archive"]

COLUMNS: Final = (
    *("bucket", "stream", "message", "offset", "next_offset", "time", "content_type", "value"),
    "day",
)
PARTITION_BY: Final = ("bucket", "day")
# Days since 1970: `to_date` would use the session's time zone.
_DAY: Final = "date_from_unix_date(cast(unix_micros(time) div 86400000000 as int)) as day"


@takes(TableJob)
def archive(spark: "SparkSession", job: TableJob) -> TableJobResult:
    """
    Add new messages of a bucket, or of single streams by their paths, to a table.

    Raises:
        BatchDiffers, CheckpointTaken, SourceTaken, SourceChanged: The checkpoint does not belong
            to the table.
        TableError: The table cannot be written.
    """
    options = job.table_options or {}
    table = open_table(job.format, job.path, partition_by=PARTITION_BY, at=job.at, **options)
    return _ArchiveRun(job, table).run(spark, *COLUMNS[:-1], _DAY)


class _ArchiveRun(TableRun):
    def _commit(self, frame: "DataFrame", batch: MicroBatch) -> tuple[Committed]:
        return (self._commit_to(self._tables[0], frame, batch),)
