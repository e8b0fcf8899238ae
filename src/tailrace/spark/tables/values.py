"""The arguments and results of table operations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.spark.tables.schemas import SchemaJson
from tailrace.spark.tables.staging import DataFile, Staged

__all__ = ["Change", "Committed", "Compacted", "Rewrite", "Write", "nothing"]

Write = Callable[[Path], None]
"""Writes Parquet files below a directory, laid out by `Table.directories`."""
Rewrite = Callable[[Sequence[DataFile], SchemaJson | None, int, Path], None]
"""Writes the rows of these files again: as these types if given, into this many files."""


def nothing(step: str) -> None:
    """The default callback of a step: do nothing."""


@dataclass(frozen=True)
class Committed:
    """What a commit came to; nothing new if the table had the batch already."""

    batch_id: int
    new: bool
    rows: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Compacted:
    """How many files became how many."""

    before: int = 0
    after: int = 0


@dataclass(frozen=True)
class Change:
    """Files that come, files that go, and the batch that this is, if it is one."""

    adds: tuple[Staged, ...]
    removes: tuple[DataFile, ...]
    schema: SchemaJson
    batch: tuple[str, int] | None = None
    retypes: bool = False
    """Every file goes, and columns change their types."""
