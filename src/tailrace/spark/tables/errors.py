"""What can go wrong with a table, one class each; all pickle."""

from tailrace.client import TailraceError

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
    """Anything that a table refuses."""


class FormatUnknown(TableError):
    """No such table format."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"unknown table format {self.name!r}: use parquet, iceberg or delta"


class LibraryMissing(TableError):
    """The library of a table format is not installed."""

    def __init__(self, name: str, extra: str) -> None:
        super().__init__(name, extra)
        self.name = name
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.name} is not installed: pip install 'tailrace[{self.extra}]'"


class PathUnsupported(TableError):
    """Tables and their checkpoints are directories of this machine."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"{self.path!r} is not a local directory: give a path or a file:// URL"
            " (mount other storage, or copy the table)"
        )


class PathAwkward(TableError):
    """The libraries of Iceberg and Delta take a path for a URL."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the path {self.path!r} has one of % # ? in it: name the directory otherwise"


class TableMismatch(TableError):
    """A table is there already, and is another kind of table."""

    def __init__(self, path: str, what: str, found: str, asked: str) -> None:
        super().__init__(path, what, found, asked)
        self.path = path
        self.what = what
        self.found = found
        self.asked = asked

    def __str__(self) -> str:
        return (
            f"the table at {self.path} has {self.what} {self.found}, not {self.asked}:"
            " use the same as before, or another directory"
        )


class TableBusy(TableError):
    """Another process writes to the table."""

    def __init__(self, path: str, waited_s: float) -> None:
        super().__init__(path, waited_s)
        self.path = path
        self.waited_s = waited_s

    def __str__(self) -> str:
        return (
            f"another process has been writing to {self.path} for {self.waited_s:g} s:"
            " wait for it, or end it"
        )


class TableDamaged(TableError):
    """A file that the journal names is in neither of its two places."""

    def __init__(self, path: str, file: str) -> None:
        super().__init__(path, file)
        self.path = path
        self.file = file

    def __str__(self) -> str:
        return (
            f"{self.file} is missing from the table at {self.path}: files were deleted by hand"
            " between a crash and this restart; restore them, or write a new table"
        )


class SchemaConflict(TableError):
    """A batch has a column of a type that the table's cannot be widened to."""

    def __init__(self, column: str, stored: str, offered: str) -> None:
        super().__init__(column, stored, offered)
        self.column = column
        self.stored = stored
        self.offered = offered

    def __str__(self) -> str:
        return (
            f"column {self.column!r} is {self.stored} in the table and {self.offered} in the"
            " batch: cast it, or write another table"
        )


class SchemaInexact(SchemaConflict):
    """A column of longs would become one of doubles, which cannot hold all that is stored."""

    def __init__(self, column: str) -> None:
        super().__init__(column, "long", "double")
        # Exceptions pickle by replaying `args`.
        self.args = (column,)

    def __str__(self) -> str:
        return (
            f"column {self.column!r} has integers beyond 2^53 in the table, which a double would"
            " round, and is double in the batch: cast it, or write another table"
        )


class BatchDiffers(TableError):
    """A batch that is in the table came again, and is another one: the checkpoint went back."""

    def __init__(self, path: str, application: str, batch_id: int) -> None:
        super().__init__(path, application, batch_id)
        self.path = path
        self.application = application
        self.batch_id = batch_id

    def __str__(self) -> str:
        return (
            f"the table at {self.path} has another batch {self.batch_id} of {self.application}:"
            " the checkpoint is older than the table, and going on would lose messages;"
            " restore both from the same moment, or write a new table"
        )


class SourceTaken(TableError):
    """The table has these streams already, from another checkpoint."""

    def __init__(self, path: str, source: str, application: str) -> None:
        super().__init__(path, source, application)
        self.path = path
        self.source = source
        self.application = application

    def __str__(self) -> str:
        return (
            f"the table at {self.path} has {self.source} already, written with another checkpoint"
            f" ({self.application}): reading it from the start again would store every message"
            " twice; give that checkpoint, or write another table"
        )


class SourceChanged(TableError):
    """A checkpoint was used for other streams before."""

    def __init__(self, path: str, application: str, before: str, now: str) -> None:
        super().__init__(path, application, before, now)
        self.path = path
        self.application = application
        self.before = before
        self.now = now

    def __str__(self) -> str:
        return (
            f"the checkpoint {self.application} of the table at {self.path} is of {self.before},"
            f" not of {self.now}: give another checkpoint for these"
        )


class CheckpointTaken(TableError):
    """A checkpoint says how far another table is."""

    def __init__(self, checkpoint: str, path: str) -> None:
        super().__init__(checkpoint, path)
        self.checkpoint = checkpoint
        self.path = path

    def __str__(self) -> str:
        return (
            f"the checkpoint {self.checkpoint} is of another table than {self.path}, or of one that"
            " was deleted: going on from there would miss what came before; give another checkpoint"
        )


class TableMissing(TableError):
    """There is no table to read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"there is no table at {self.path}: is the path right, was anything archived there?"


class TableShared(TableError):
    """Two tables were given the same directory."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"rows and dead letters are both to go to {self.path}: give one another directory"
