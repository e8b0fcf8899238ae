"""
Tables without Spark: files that pyarrow writes where Spark would, and what others read there.

Everything that a table decides lies behind `commit_written` and `compact_written`, so that kills
at every step need no JVM.
"""

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tailrace.spark.tables import Committed, Compacted, Table, open_table
from tailrace.spark.tables.schemas import SchemaJson
from tailrace.spark.tables.staging import DataFile
from tailrace.spark.tables.values import Rewrite, nothing

PARTITIONS = ("bucket", "day")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ARROW = pa.schema(
    [
        ("bucket", pa.string()), ("stream", pa.string()), ("message", pa.int64()),
        ("value", pa.binary()), ("day", pa.date32()),
    ]
)  # fmt: skip
_WIDE = _ARROW.set(2, pa.field("message", pa.float64()))
_KINDS = {
    pa.string(): "string", pa.int64(): "long", pa.float64(): "double",
    pa.binary(): "binary", pa.date32(): "date",
}  # fmt: skip

Row = dict[str, Any]


def rows(batch_id: int, count: int = 6) -> list[Row]:
    """Rows of two buckets and two days; the first bucket looks like a number."""
    return [
        {
            "bucket": ("0042", "news")[n % 2],
            "stream": f"s{n}",
            "message": batch_id * 100 + n,
            "value": f"{batch_id}/{n}".encode(),
            "day": date(2026, 1, 1 + n % 3 // 2),
        }
        for n in range(count)
    ]


def _schema_json(schema: Any) -> SchemaJson:
    fields = [
        {"name": field.name, "type": _KINDS[field.type], "nullable": True, "metadata": {}}
        for field in schema
    ]
    return {"type": "struct", "fields": fields}


def new_table(
    format: str, path: Path, at: Callable[[str], None] | None = None, application: str = "app"
) -> Table:
    return open_table(
        format, path, partition_by=PARTITIONS, application=application, at=at or nothing
    )


def write(table: Table, content: Sequence[Row], directory: Path, schema: Any = _ARROW) -> None:
    """As Spark lays files out: a directory for each value of each column of the partition."""
    directory.mkdir()
    keeps = table.directories != table.partition_by
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in content:
        groups.setdefault(tuple(row[name] for name in table.partition_by), []).append(row)
    for values, group in groups.items():
        names = zip(table.directories, values, strict=True)
        below = directory.joinpath(*(f"{name}={value or NO_VALUE}" for name, value in names))
        below.mkdir(parents=True)
        frame = pa.Table.from_pylist(group, schema=schema)
        pq.write_table(
            frame if keeps else frame.drop_columns(list(PARTITIONS)), below / "0.parquet"
        )


def commit(
    table: Table, batch_id: int, content: Sequence[Row], *, wide: bool = False, **more: Any
) -> Committed:
    """Add rows; wide ones have numbers of messages that are doubles."""
    schema = _WIDE if wide else _ARROW
    return table.commit_written(
        batch_id, lambda to: write(table, content, to, schema),
        _schema_json(schema), _rewrite(table), **more,
    )  # fmt: skip


def compact(table: Table) -> Compacted:
    return table.compact_written(_rewrite(table), files_min=2)


def _rewrite(table: Table) -> Rewrite:
    def rewrite(
        files: Sequence[DataFile], schema: SchemaJson | None, count: int, directory: Path
    ) -> None:
        found = _read_files(table.path, [file.path for file in files])
        write(table, found, directory, _ARROW if schema is None else _WIDE)

    return rewrite


def read(table: Table) -> list[Row]:
    """What a reader that knows nothing of us sees, in the order of the messages."""
    content = _READERS[table.format](table.path)
    return sorted(content, key=lambda row: (row["message"], row["stream"]))


def column_types(table: Table) -> dict[str, str]:
    schema = table.schema()
    assert schema is not None
    return {field["name"]: field["type"] for field in schema["fields"]}


def visible_files(path: Path) -> set[str]:
    found = (file.relative_to(path) for file in path.rglob("*.parquet"))
    return {file.as_posix() for file in found if file.parts[0] not in ("_tailrace", "_delta_log")}


def _read_files(path: Path, files: Sequence[str]) -> list[Row]:
    if not files:
        return []
    kind = pq.read_schema(path / files[0]).field("message").type
    found = ds.dataset(
        [str(path / file) for file in files],
        schema=_WIDE if kind == pa.float64() else _ARROW,
        partitioning=ds.HivePartitioning(pa.schema([_ARROW.field(name) for name in PARTITIONS])),
        partition_base_dir=str(path),
    )
    content: list[Row] = found.to_table().select(_ARROW.names).to_pylist()
    return content


def _read_parquet(path: Path) -> list[Row]:
    return _read_files(path, sorted(visible_files(path)))


def _read_delta(path: Path) -> list[Row]:
    from deltalake import DeltaTable

    if not (path / "_delta_log").exists():
        return []
    content: list[Row] = DeltaTable(str(path)).to_pyarrow_table().select(_ARROW.names).to_pylist()
    return content


def _read_iceberg(path: Path) -> list[Row]:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError

    catalog = SqlCatalog("tailrace", uri=f"sqlite:///{path}/_tailrace/catalog.db")
    try:
        found = catalog.load_table("tailrace.table").scan().to_arrow()
    except NoSuchTableError:
        return []
    finally:
        catalog.close()
    content: list[Row] = found.select(_ARROW.names).to_pylist()
    return content


_READERS = {"parquet": _read_parquet, "delta": _read_delta, "iceberg": _read_iceberg}
