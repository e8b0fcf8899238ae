"""
The batches of each application, to detect a checkpoint that was set back.

Spark repeats only the last batch of a checkpoint, and repeats it exactly. A batch that is in the
table and comes again with another mark belongs to an older checkpoint: skipping it would lose the
messages that the first one did not have.
"""

from pathlib import Path
from typing import Any, Final

from tailrace.spark.tables.errors import BatchDiffers, SourceChanged, SourceTaken
from tailrace.spark.tables.files import read_json, write_json

__all__ = ["BatchLog"]

KEPT: Final = 100
"""As many batches as Spark keeps in a checkpoint."""


class BatchLog:
    """A file beside the table's own record of its batches."""

    def __init__(self, table: Path, file: Path) -> None:
        self._table = table
        self._file = file

    def check(self, application: str, batch_id: int, source: str | None, mark: str | None) -> None:
        """
        See that a batch is the one that its id says, and reads nothing that another one reads.

        Raises:
            SourceTaken: Another application brings the same streams.
            SourceChanged: The application brought others before.
            BatchDiffers: This id was another batch.
        """
        applications = read_json(self._file) or {}
        for other, known in applications.items():
            if other != application and source is not None and known["source"] == source:
                raise SourceTaken(str(self._table), source, other)
        known = applications.get(application, {})
        if source is not None and known.get("source", source) != source:
            raise SourceChanged(str(self._table), application, known["source"], source)
        marks: dict[str, Any] = known.get("marks", {})
        if mark is None or not marks or batch_id > max(map(int, marks)):
            return
        if marks.get(str(batch_id)) != mark:
            raise BatchDiffers(str(self._table), application, batch_id)

    def keep(self, application: str, batch_id: int, source: str | None, mark: str | None) -> None:
        """
        Before the batch is committed: if that fails, the same batch comes again, and no other.
        """
        applications = read_json(self._file) or {}
        marks = applications.get(application, {}).get("marks", {}) | {str(batch_id): mark}
        last = dict(sorted(marks.items(), key=lambda item: int(item[0]))[-KEPT:])
        applications[application] = {"source": source, "marks": last}
        write_json(self._file, applications)
