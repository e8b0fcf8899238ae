"""What Spark has written, and where it goes in the table."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from tailrace.spark.tables.files import sync_file

__all__ = ["DataFile", "Staged", "partition_values", "staged"]

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class DataFile:
    """A file of the table: `path` is relative to the table's directory."""

    path: str
    rows: int | None
    """None where nothing has counted them."""
    bytes: int
    partition: tuple[str | None, ...]


@dataclass(frozen=True)
class Staged:
    """A complete file, where it is and where it goes; both relative to the table."""

    source: str
    file: DataFile


def staged(table: Path, directory: Path, names: Sequence[str], label: str) -> tuple[Staged, ...]:
    """
    Every file with rows below `directory`, on disk for good, under the name that it will have.

    Names begin with the batch's id, and no two are ever the same.
    """
    import pyarrow.parquet as pq

    unique, found = uuid.uuid4().hex[:12], []
    for number, source in enumerate(sorted(directory.rglob("*.parquet"))):
        rows = pq.read_metadata(source).num_rows
        if not rows:
            continue
        sync_file(source)
        below = source.relative_to(directory).parent
        target = _without_copies(below) / f"{label}-{unique}-{number:05d}.parquet"
        values = partition_values(below, names)
        file = DataFile(target.as_posix(), rows, source.stat().st_size, values)
        found.append(Staged(source.relative_to(table).as_posix(), file))
    return tuple(found)


def partition_values(directory: Path, names: Sequence[str]) -> tuple[str | None, ...]:
    """What `bucket=b/day=2026-01-31` says, in the order of the names."""
    said = dict(part.split("=", 1) for part in directory.parts if "=" in part)
    values = (said.get(name, NO_VALUE) for name in names)
    return tuple(None if value == NO_VALUE else unquote(value) for value in values)


def _without_copies(directory: Path) -> Path:
    """
    The directory as it is, or without the names where they are those of copies.

    A file that has the column itself must not lie in `bucket=…`: Spark would see it twice.
    """
    if not any(part.startswith("_") for part in directory.parts):
        return directory
    return Path("data", *(part.split("=", 1)[1] for part in directory.parts))
