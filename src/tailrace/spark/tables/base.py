"""
Tables that take each batch once, whatever happens in between.

Rule 1: a batch is named by its application and its id, and an application's ids grow. A table
remembers the last one that it took, in the same step that makes the batch's rows visible; what is
not newer is skipped.

Rule 2: one process at a time changes a table, and before it does anything else it ends what a
crash has left half done (`_recover`).

Rule 3: what Spark writes goes to a hidden directory. Only complete, synced files get a place in
the table, and a journal says which, before the first of them moves (`_publish`).

    <table>/bucket=…/day=…/*.parquet      the rows; see each format for what lies beside them
    <table>/_tailrace/table.json          what kind of table this is
    <table>/_tailrace/applications.json   what each application reads, and its last batches
    <table>/_tailrace/journal.json        a change that is under way
    <table>/_tailrace/staging/…           what Spark is writing

The callback `at` is called at each step; tests end the process there.
"""

import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailrace.spark.tables.batch_log import BatchLog
from tailrace.spark.tables.errors import TableMismatch
from tailrace.spark.tables.files import alone, read_json, write_json
from tailrace.spark.tables.schemas import NO_COLUMNS, SchemaJson, grown, retyped
from tailrace.spark.tables.staging import DataFile, Staged, staged
from tailrace.spark.tables.values import (
    Change,
    Committed,
    Compacted,
    Rewrite,
    Write,
    nothing,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["HIDDEN", "SMALL_BYTES", "SMALL_FILES_MIN", "Table"]

HIDDEN: Final = "_tailrace"
SMALL_BYTES: Final = 32 << 20
SMALL_FILES_MIN: Final = 16
TARGET_BYTES: Final = 256 << 20


class Table(ABC):
    """A directory of Parquet files, in one of the formats."""

    format: str
    directories: tuple[str, ...]
    """The names in the path of a staged file, one for each column that it is partitioned by."""

    def __init__(
        self,
        path: Path,
        partition_by: Sequence[str] = (),
        application: str = "tailrace",
        at: Callable[[str], None] = nothing,
    ) -> None:
        self.path = path
        self.partition_by = tuple(partition_by)
        self.directories = self.partition_by
        self.application = application
        self._at = at
        self._hidden = path / HIDDEN
        self._journal = self._hidden / "journal.json"
        self._staging = self._hidden / "staging"
        self._batch_log = BatchLog(path, self._hidden / "applications.json")
        self.id = self._describe()

    # What differs between the formats.

    @abstractmethod
    def schema(self) -> SchemaJson | None:
        """Of the rows that are there; None before the first batch."""

    @abstractmethod
    def files(self) -> list[DataFile]:
        """Every file with rows of the table."""

    @abstractmethod
    def frame(
        self, spark: "SparkSession", files: Sequence[DataFile], schema: SchemaJson
    ) -> "DataFrame":
        """The rows of some files."""

    @abstractmethod
    def _last_batch(self, application: str) -> int | None: ...

    @abstractmethod
    def _publish(self, change: Change) -> None:
        """Make a change visible: as a whole, and together with the batch's id (rule 1)."""

    @abstractmethod
    def _recover(self) -> None:
        """End, or undo, what a crash has left half done."""

    # The same for all.

    def committed(self, batch_id: int) -> bool:
        """Whether the table has taken this batch of the application."""
        with self._turn():
            return self._has(batch_id)

    def commit(
        self,
        batch_id: int,
        dataframe: "DataFrame",
        *,
        source: str | None = None,
        mark: str | None = None,
    ) -> Committed:
        """
        Add the rows of a batch, unless the table has it already.

        `source` says what the application reads: no second one may read the same into this table.
        `mark` tells a batch from another one of the same id, as of a checkpoint that went back.

        Raises:
            BatchDiffers, SourceTaken, SchemaConflict, TableBusy
        """
        from tailrace.spark.tables.frames import rewriting, writing

        return self.commit_written(
            batch_id,
            writing(dataframe, self),
            dataframe.schema.jsonValue(),
            rewriting(dataframe.sparkSession, self),
            source=source,
            mark=mark,
        )

    def commit_written(
        self,
        batch_id: int,
        write: Write,
        schema: SchemaJson,
        rewrite: Rewrite | None = None,
        *,
        source: str | None = None,
        mark: str | None = None,
    ) -> Committed:
        """`commit` for rows that come from anywhere: `write` writes their files."""
        with self._turn():
            self._batch_log.check(self.application, batch_id, source, mark)
            if self._has(batch_id):
                return Committed(batch_id, new=False)
            before = self.schema() or NO_COLUMNS
            after = grown(before, schema)
            if (changed := retyped(before, after)) is not None and rewrite is not None:
                self._retype(rewrite, changed)
            adds = self._stage(write, f"{batch_id:010d}")
            self._batch_log.keep(self.application, batch_id, source, mark)
            self._publish(Change(adds, (), after, (self.application, batch_id)))
            self._clear_staging()
        sizes = [add.file for add in adds]
        rows, size = sum(f.rows or 0 for f in sizes), sum(f.bytes for f in sizes)
        return Committed(batch_id, True, rows, len(adds), size)

    def read(self, spark: "SparkSession") -> "DataFrame":
        """Every row, each once."""
        from tailrace.spark.tables.frames import empty_frame

        with self._turn():
            files, schema = self.files(), self.schema()
        if schema is None or not files:
            return empty_frame(spark, schema or NO_COLUMNS)
        return self.frame(spark, files, schema)

    def compact(
        self,
        spark: "SparkSession",
        *,
        small_bytes: int = SMALL_BYTES,
        files_min: int = SMALL_FILES_MIN,
    ) -> Compacted:
        """Merge small files in each partition that has at least this many."""
        from tailrace.spark.tables.frames import rewriting

        return self.compact_written(
            rewriting(spark, self), small_bytes=small_bytes, files_min=files_min
        )

    def compact_written(
        self, rewrite: Rewrite, *, small_bytes: int = SMALL_BYTES, files_min: int = SMALL_FILES_MIN
    ) -> Compacted:
        """`compact` by anything that can write rows again."""
        before = after = 0
        with self._turn():
            schema = self.schema() or NO_COLUMNS
            for small in _crowded(self.files(), small_bytes, max(files_min, 2)):
                count = -(-sum(file.bytes for file in small) // TARGET_BYTES)
                adds = self._stage(_again(rewrite, small, None, count), "compacted")
                self._publish(Change(adds, tuple(small), schema))
                self._clear_staging()
                before, after = before + len(small), after + len(adds)
        return Compacted(before, after)

    def _retype(self, rewrite: Rewrite, schema: SchemaJson) -> None:
        """Write everything again, with other types."""
        files = self.files()
        count = max(len({file.partition for file in files}), len(files) // SMALL_FILES_MIN, 1)
        adds = self._stage(_again(rewrite, files, schema, count), "retyped")
        self._publish(Change(adds, tuple(files), schema, retypes=True))
        self._clear_staging()

    def _stage(self, write: Write, label: str) -> tuple[Staged, ...]:
        directory = self._staging / uuid.uuid4().hex
        self._staging.mkdir(parents=True, exist_ok=True)
        write(directory)
        self._at("written")
        adds = staged(self.path, directory, self.directories, label)
        self._at("staged")
        return adds

    def _has(self, batch_id: int) -> bool:
        last = self._last_batch(self.application)
        return last is not None and batch_id <= last

    def _clear_staging(self) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with alone(self._hidden / "lock"):
            self._recover()
            self._clear_staging()
            yield

    def _describe(self) -> str:
        """
        Say what kind of table this is, or see that it is the kind that was asked for.

        Its id tells it from another one that is in the same place later.
        """
        file = self._hidden / "table.json"
        asked = {"format": self.format, "partition_by": list(self.partition_by)}
        with alone(self._hidden / "lock"):
            found = read_json(file)
            if found is None:
                found = {**asked, "id": uuid.uuid4().hex}
                write_json(file, found)
        for what, value in asked.items():
            if found.get(what) != value:
                raise TableMismatch(str(self.path), what, str(found.get(what)), str(value))
        return str(found["id"])


def _again(
    rewrite: Rewrite, files: Sequence[DataFile], schema: SchemaJson | None, count: int
) -> Write:
    return lambda directory: rewrite(files, schema, count, directory)


def _crowded(files: Sequence[DataFile], small_bytes: int, files_min: int) -> list[list[DataFile]]:
    """The small files of each partition that has at least this many."""
    partitions: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        if file.bytes < small_bytes:
            partitions.setdefault(file.partition, []).append(file)
    return [small for small in partitions.values() if len(small) >= files_min]
