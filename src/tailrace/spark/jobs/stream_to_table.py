"""
Streams to tables, batch by batch: the common part of `archive` and `materialize`.

Rule 1: a batch is identified by its query and its number, which Spark keeps in the checkpoint. A
batch that is repeated after a crash has the same identity, and tables skip batches they have.

Rule 2: a batch has a digest of its end offsets in the checkpoint. A checkpoint that was set back
plans other batches under the old numbers; tables refuse those.

Rule 3: a checkpoint belongs to one table. Another table, or one that was deleted and created again,
would get the next messages and miss the earlier ones.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark.jobs.parameters import StreamSelection
from tailrace.spark.jobs.streaming_query import POLL_INTERVAL_S, run_query
from tailrace.spark.tables import CheckpointTaken, Committed, Table
from tailrace.spark.tables.base import SMALL_FILES_MIN
from tailrace.spark.tables.files import local_path, read_json, write_json
from tailrace.spark.tables.values import nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "MicroBatch",
    "TableJob",
    "TableJobResult",
    "TableRun",
    "default_checkpoint",
]

COMPACT_EVERY: Final = 50
"""The number of batches between compactions of a run that does not end."""


@dataclass(frozen=True, kw_only=True)
class TableJob(StreamSelection):
    """
    The parameters of `archive` and `materialize`.

    Args:
        table: A local directory. Several buckets of one server can share it.
        format: parquet, iceberg or delta.
        checkpoint: The directory of the checkpoint; by default, in the table's directory.
        every_s: Run a batch this often, and do not end; by default the job ends when it has stored
            all messages that existed at its start.
        max_messages, max_bytes: The largest size of a batch.
        compact_files: Compact a partition with this many small files; 0: never.
        table_options: For Iceberg: `catalog` and `identifier`, see `open_table`.
        rows: A streaming DataFrame with the source's columns, instead of the source.
        stopped: Returns whether to end; called regularly.
        at: Called at each step of a commit.
    """

    table: str | Path
    format: str = "parquet"
    checkpoint: str | Path | None = None
    every_s: float | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    compact_files: int = SMALL_FILES_MIN
    table_options: Mapping[str, Any] | None = None
    rows: "DataFrame | None" = None
    stopped: Callable[[], bool] = lambda: False
    at: Callable[[str], None] = nothing

    @property
    def path(self) -> Path:
        return local_path(self.table)


@dataclass(frozen=True, slots=True)
class TableJobResult:
    """What one run added."""

    batches: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    compacted: int = 0
    """The number of small files that were replaced by larger ones."""
    dead_letters: int = 0
    """The messages that `materialize` wrote to the table of dead letters."""


@dataclass(frozen=True)
class MicroBatch:
    """The identity of a micro-batch."""

    application: str
    batch_id: int
    digest: str | None
    """Of its end offsets."""


class TableRun(ABC):
    """One run of a job: commits batches to its tables, the main table first, and compacts them."""

    def __init__(self, job: TableJob, *tables: Table) -> None:
        self._job = job
        self._tables = tables
        self._commits: list[Sequence[Committed]] = []
        self._compacted = 0

    @abstractmethod
    def _commit(self, frame: "DataFrame", batch: MicroBatch) -> Sequence[Committed]:
        """Commit a batch to each table."""

    def _commit_to(self, table: Table, frame: "DataFrame", batch: MicroBatch) -> Committed:
        source = self._job.describe()
        return table.commit(batch.batch_id, frame, source=source, mark=batch.digest)

    def run(self, spark: "SparkSession", *columns: str) -> TableJobResult:
        """
        Run the query; a batch that failed is repeated by the next run.

        Args:
            columns: SQL expressions of the columns that batches have; by default, the source's.

        Raises:
            PathUnsupported: The checkpoint is not a local directory.
            CheckpointTaken: It belongs to another table.
            Exception: The error of a commit, or of Spark.
        """
        job = self._job
        checkpoint = local_path(job.checkpoint or default_checkpoint(job.path, job))
        _bind(checkpoint, self._tables[0])
        rows = job.rows
        if rows is None:
            options = job.source_options(
                maxMessagesPerTrigger=job.max_messages, maxBytesPerTrigger=job.max_bytes
            )
            rows = spark.readStream.format("tailrace").options(**options).load()
        self._follow(rows.selectExpr(*columns) if columns else rows, checkpoint)
        self._compact(spark)
        return self._result()

    def _follow(self, rows: "DataFrame", checkpoint: Path) -> None:
        failures: list[BaseException] = []

        def take(frame: "DataFrame", batch_id: int) -> None:
            try:
                self._take(frame, _batch(checkpoint, batch_id))
            except BaseException as error:
                failures.append(error)
                raise

        def wait(query: "StreamingQuery") -> None:
            while not query.awaitTermination(POLL_INTERVAL_S):  # type: ignore[arg-type]
                if self._job.stopped():
                    return

        writer = rows.writeStream.foreachBatch(take)
        try:
            run_query(writer, str(checkpoint), self._job.every_s, wait)
        except Exception:
            # Spark only keeps the text of the error.
            if failures:
                raise failures[0] from None
            raise

    def _take(self, frame: "DataFrame", batch: MicroBatch) -> None:
        for table in self._tables:
            table.application = batch.application
        self._commits.append(self._commit(frame, batch))
        is_endless = self._job.every_s is not None
        if is_endless and batch.batch_id % COMPACT_EVERY == COMPACT_EVERY - 1:
            self._compact(frame.sparkSession)

    def _compact(self, spark: "SparkSession") -> None:
        if self._job.compact_files:
            for table in self._tables:
                done = table.compact(spark, files_min=self._job.compact_files)
                self._compacted += done.before

    def _result(self) -> TableJobResult:
        commits = [commit for batch in self._commits for commit in batch]
        main = [batch[0] for batch in self._commits]
        rows = sum(commit.rows for commit in main)
        return TableJobResult(
            batches=sum(commit.new for commit in main),
            rows=rows,
            files=sum(commit.files for commit in commits),
            bytes=sum(commit.bytes for commit in commits),
            compacted=self._compacted,
            dead_letters=sum(commit.rows for commit in commits) - rows,
        )


def default_checkpoint(table: Path, selection: StreamSelection) -> Path:
    """In the table's directory, so that both are copied and deleted together."""
    name = selection.bucket or "paths"
    if selection.describe() not in ("paths", f"bucket {name}"):
        # Another prefix of the same bucket is another query.
        name += "-" + hashlib.sha256(selection.describe().encode()).hexdigest()[:12]
    return table / "_tailrace" / "checkpoints" / name


def _bind(checkpoint: Path, table: Table) -> None:
    """Rule 3."""
    file = checkpoint / "tailrace-table.json"
    found = read_json(file)
    if found is None:
        write_json(file, {"table": table.id})
    elif found["table"] != table.id:
        raise CheckpointTaken(str(checkpoint), str(table.path))


def _batch(checkpoint: Path, batch_id: int) -> MicroBatch:
    """Read the identity of a batch; Spark writes both files before it runs the batch."""
    query = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
    lines = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8").split("\n", 2)
    # The first lines are a version, and settings with the time of planning.
    digest = hashlib.sha256(lines[2].encode()).hexdigest() if len(lines) > 2 else None
    return MicroBatch(f"tailrace-{query}", batch_id, digest)
