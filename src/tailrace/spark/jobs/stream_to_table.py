"""
Streams to tables, batch by batch: what `archive` and `materialize` have in common.

Rule 1: a batch is named by its query and its number, both of which Spark keeps in the checkpoint:
a batch that comes again after a crash has the same name, and tables skip what they have.

Rule 2: the batch's mark is where it ends in every stream, as the checkpoint says. A checkpoint that
was put back to an earlier state plans other batches under the old numbers; tables refuse those.

Rule 3: a checkpoint is of one table. Another one, or one that was deleted and made anew, would get
what comes, and miss what came before.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark.tables import CheckpointTaken, Table
from tailrace.spark.tables.files import local_path, read_json, write_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Batch", "Selection", "default_checkpoint", "follow", "options_of", "read_stream"]

_LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which streams, of which server, and how they are reached."""

    url: str
    bucket: str | None = None
    streams: tuple[str, ...] = ()
    prefix: str = ""
    pattern: str | None = None
    fail_on_data_loss: bool = True
    token: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0

    def describe(self) -> str:
        """The streams, in words: what a table says that it has."""
        where = "paths" if self.bucket is None else f"bucket {self.bucket}"
        chosen = [f"prefix {self.prefix}"] if self.prefix else []
        chosen += [f"pattern {self.pattern}"] if self.pattern else []
        chosen += [f"streams {', '.join(sorted(self.streams))}"] if self.streams else []
        return ", ".join([where, *chosen])


@dataclass(frozen=True)
class Batch:
    """A micro-batch, by what tells it from every other."""

    application: str
    batch_id: int
    mark: str | None


def options_of(selection: Selection, **more: Any) -> dict[str, str]:
    """Options of the source; those that are not given are left out."""
    found: dict[str, Any] = {
        "url": selection.url,
        "token": selection.token,
        "headers": json.dumps(dict(selection.headers)) if selection.headers else None,
        "timeout": selection.timeout_s,
        "bucket": selection.bucket,
        "prefix": selection.prefix,
        "pattern": selection.pattern,
        "streams": json.dumps(selection.streams) if selection.streams else None,
        "failOnDataLoss": str(selection.fail_on_data_loss).lower(),
        **more,
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def default_checkpoint(table: Path, selection: Selection) -> Path:
    """In the table's directory: they belong together, and are copied and deleted together."""
    name = selection.bucket or "paths"
    if selection.describe() not in ("paths", f"bucket {name}"):
        # Another prefix of the same bucket is another query.
        name += "-" + hashlib.sha256(selection.describe().encode()).hexdigest()[:12]
    return table / "_tailrace" / "checkpoints" / name


def follow(
    rows: "DataFrame",
    checkpoint: str | Path,
    table: Table,
    each: Callable[["DataFrame", Batch], None],
    *,
    every_s: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """
    Give `each` batch of a streaming DataFrame, in order; a batch that failed comes again next time.

    Without `every_s`, it ends when everything is there that was at its start.

    Raises:
        PathUnsupported: The checkpoint is no local directory.
        CheckpointTaken: It is of another table.
        Exception: What `each` raised, or what Spark did.
    """
    directory = local_path(checkpoint)
    _bind(directory, table)
    failures: list[BaseException] = []

    def take(frame: "DataFrame", batch_id: int) -> None:
        try:
            each(frame, _batch(directory, batch_id))
        except BaseException as error:
            failures.append(error)
            raise

    query = _start(rows, directory, take, every_s)
    try:
        while not query.awaitTermination(_LOOK_EVERY_S):  # type: ignore[arg-type]
            if stopped():
                return
    except Exception:
        # Spark knows it by its text alone.
        if failures:
            raise failures[0] from None
        raise
    finally:
        query.stop()


def _start(
    rows: "DataFrame",
    checkpoint: Path,
    take: Callable[["DataFrame", int], None],
    every_s: float | None,
) -> "StreamingQuery":
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{max(1, round(every_s * 1000))} milliseconds").start()


def _bind(checkpoint: Path, table: Table) -> None:
    """Rule 3."""
    note = checkpoint / "tailrace-table.json"
    found = read_json(note)
    if found is None:
        write_json(note, {"table": table.id})
    elif found["table"] != table.id:
        raise CheckpointTaken(str(checkpoint), str(table.path))


def _batch(checkpoint: Path, batch_id: int) -> Batch:
    """Spark has written both files before it gives the batch away."""
    query = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
    lines = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8").split("\n", 2)
    # A version, and settings with the time of planning; then where each source ends.
    mark = hashlib.sha256(lines[2].encode()).hexdigest() if len(lines) > 2 else None
    return Batch(f"tailrace-{query}", batch_id, mark)


def read_stream(spark: "SparkSession", selection: Selection, **more: Any) -> "DataFrame":
    """The streams as a streaming DataFrame."""
    return spark.readStream.format("tailrace").options(**options_of(selection, **more)).load()
