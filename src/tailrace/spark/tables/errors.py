"""The errors of tables, under one base."""

from tailrace.exceptions import ExitCode, TailraceError

__all__ = [
    "BatchDiffers",
    "CheckpointTaken",
    "FormatUnknown",
    "LibraryMissing",
    "PathAwkward",
    "PathUnsupported",
    "SchemaConflict",
    "SchemaInexact",
    "SourceChanged",
    "SourceTaken",
    "TableBusy",
    "TableDamaged",
    "TableError",
    "TableMismatch",
    "TableMissing",
    "TableShared",
]


class TableError(TailraceError):
    """A table refuses an operation."""


class FormatUnknown(TableError):
    """No such table format."""

    message = "unknown table format {name!r}: use parquet, iceberg or delta"
    exit_code = ExitCode.USAGE
    name: str


class LibraryMissing(TableError):
    """The library of a table format is not installed."""

    message = "{name} is not installed: pip install 'tailrace[{extra}]'"
    name: str
    extra: str


class PathUnsupported(TableError):
    """Tables and their checkpoints are local directories."""

    message = (
        "{path!r} is not a local directory: give a path or a file:// URL"
        " (mount other storage, or copy the table)"
    )
    exit_code = ExitCode.USAGE
    path: str


class PathAwkward(TableError):
    """The libraries of Iceberg and Delta interpret a path as a URL."""

    message = "the path {path!r} contains %, # or ?: rename the directory"
    exit_code = ExitCode.USAGE
    path: str


class TableMismatch(TableError):
    """The existing table is of another kind."""

    message = (
        "the table at {path} has {what} {found}, not {asked}:"
        " use the same as before, or another directory"
    )
    exit_code = ExitCode.CONFLICT
    path: str
    what: str
    found: str
    asked: str


class TableBusy(TableError):
    """Another process writes to the table."""

    message = (
        "another process has been writing to {path} for {waited_s:g} s: wait for it, or end it"
    )
    exit_code = ExitCode.CONFLICT
    path: str
    waited_s: float


class TableDamaged(TableError):
    """A file that the journal names is in neither of its two locations."""

    message = (
        "{file} is missing from the table at {path}: files were deleted by hand"
        " between a crash and this restart; restore them, or write a new table"
    )
    path: str
    file: str


class SchemaConflict(TableError):
    """A column of a batch has a type to which the table's cannot be widened."""

    message = (
        "column {column!r} is {stored} in the table and {offered} in the"
        " batch: cast it, or write another table"
    )
    exit_code = ExitCode.CONFLICT
    column: str
    stored: str
    offered: str


class SchemaInexact(SchemaConflict):
    """A column of longs would become one of doubles, which cannot hold all stored values."""

    message = (
        "column {column!r} has integers beyond 2^53 in the table, which a double would"
        " round, and is double in the batch: cast it, or write another table"
    )
    stored: str = "long"
    offered: str = "double"


class BatchDiffers(TableError):
    """The table already has another batch of this number: the checkpoint was set back."""

    message = (
        "the table at {path} has another batch {batch_id} of {application}:"
        " the checkpoint is older than the table, and continuing would lose messages;"
        " restore both from the same moment, or write a new table"
    )
    exit_code = ExitCode.CONFLICT
    path: str
    application: str
    batch_id: int


class SourceTaken(TableError):
    """The table already has these streams, from another checkpoint."""

    message = (
        "the table at {path} already has {source}, written with another checkpoint"
        " ({application}): reading it from the start again would store every message"
        " twice; give that checkpoint, or write another table"
    )
    exit_code = ExitCode.CONFLICT
    path: str
    source: str
    application: str


class SourceChanged(TableError):
    """The checkpoint was used for other streams before."""

    message = (
        "the checkpoint {application} of the table at {path} is of {before},"
        " not of {now}: give another checkpoint for these"
    )
    exit_code = ExitCode.CONFLICT
    path: str
    application: str
    before: str
    now: str


class CheckpointTaken(TableError):
    """The checkpoint belongs to another table."""

    message = (
        "the checkpoint {checkpoint} is of another table than {path}, or of one that"
        " was deleted: continuing from it would miss earlier messages; give another checkpoint"
    )
    exit_code = ExitCode.CONFLICT
    checkpoint: str
    path: str


class TableMissing(TableError):
    """There is no table to read."""

    message = "there is no table at {path}: check the path, and that it was archived"
    exit_code = ExitCode.NOT_FOUND
    path: str


class TableShared(TableError):
    """Two tables were given the same directory."""

    message = "rows and dead letters would both go to {path}: give one another directory"
    exit_code = ExitCode.CONFLICT
    path: str
