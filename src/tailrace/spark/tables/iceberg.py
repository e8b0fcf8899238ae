"""
Iceberg tables, by `pyiceberg`: no jar is needed.

The catalog is a SQLite file in the table's directory, unless another one is given by its
properties; its name is `tailrace`. The batch's id is a property of the table, set in the commit
that adds the batch's files; it is in the snapshot's summary too, but snapshots expire.

Partitions are identities of the columns, which therefore are in the files as well: the
directories (`data/{bucket}/{day}/`) say nothing to Iceberg. Iceberg keeps absolute paths: such a
table cannot be moved to another directory.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark.tables.base import HIDDEN
from tailrace.spark.tables.errors import LibraryMissing
from tailrace.spark.tables.frames import COPY, struct
from tailrace.spark.tables.metadata import MetadataTable
from tailrace.spark.tables.schemas import SchemaJson
from tailrace.spark.tables.staging import DataFile
from tailrace.spark.tables.values import Change

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IcebergTable"]

BATCH: Final = "tailrace.batch."
"""What the property with an application's last batch begins with."""
_NAME_MAPPING: Final = "schema.name-mapping.default"


class IcebergTable(MetadataTable):
    """A table with Iceberg's metadata."""

    format = "iceberg"

    def __init__(
        self,
        path: Path,
        partition_by: Sequence[str] = (),
        application: str = "tailrace",
        at: "Callable[[str], None] | None" = None,
        *,
        catalog: Mapping[str, str] | None = None,
        identifier: str = "tailrace.table",
    ) -> None:
        _library()
        super().__init__(path, partition_by, application, *([at] if at else []))
        # Iceberg wants the columns in the files, Spark takes them out: it gets copies.
        self.directories = tuple(COPY + name for name in self.partition_by)
        self._catalog = catalog
        self._identifier = identifier

    def schema(self) -> SchemaJson | None:
        with self._open() as (_, table):
            return None if table is None else _spark_schema(table.schema())

    def files(self) -> list[DataFile]:
        with self._open() as (_, table):
            if table is None:
                return []
            return [self._file(task.file) for task in table.scan().plan_files()]

    def _file(self, file: Any) -> DataFile:
        path = Path(file.file_path.removeprefix("file://")).relative_to(self.path)
        values = (None if value is None else str(value) for value in file.partition)
        return DataFile(path.as_posix(), file.record_count, file.file_size_in_bytes, tuple(values))

    def _last_batch(self, application: str) -> int | None:
        with self._open() as (_, table):
            last = None if table is None else table.properties.get(BATCH + application)
            return None if last is None else int(last)

    def _log(self, change: Change) -> None:
        with self._open() as (catalog, found):
            table = found or self._create(catalog, change.schema)
            with table.transaction() as transaction:
                self._update_schema(transaction, change)
                summary = {}
                if change.batch is not None:
                    application, batch_id = change.batch
                    summary = {BATCH + application: str(batch_id)}
                    transaction.set_properties(**summary)
                self._update_files(transaction, table, change, summary)
                self._at("logging")

    def _update_schema(self, transaction: Any, change: Change) -> None:
        wanted = _arrow_schema(change.schema)
        if change.retypes:
            changed = _retyped_columns(transaction.table_metadata.schema(), change.schema)
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for name in changed:
                    update.delete_column(name)
        with transaction.update_schema() as update:
            update.union_by_name(wanted)
        # Files that Spark writes have no field ids: columns are found by this.
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        if transaction.table_metadata.properties.get(_NAME_MAPPING) != mapping:
            transaction.set_properties(**{_NAME_MAPPING: mapping})

    def _update_files(
        self, transaction: Any, table: Any, change: Change, summary: dict[str, str]
    ) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        removed = {file.path for file in change.removes}
        if not removed and not change.adds:
            return
        snapshot = transaction.update_snapshot(snapshot_properties=summary)
        with snapshot.overwrite() if removed else snapshot.fast_append() as update:
            for task in table.scan().plan_files() if removed else ():
                if self._file(task.file).path in removed:
                    update.delete_data_file(task.file)
            for add in change.adds:
                where = f"file://{self.path / add.file.path}"
                metadata = transaction.table_metadata
                update.append_data_file(parquet_file_to_data_file(table.io, metadata, where))

    def _create(self, catalog: Any, schema: SchemaJson) -> Any:
        catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
        arguments = (self._identifier, _arrow_schema(schema), f"file://{self.path}")
        # One commit: a table without its partitions must not be seen after a crash.
        with (
            catalog.create_table_transaction(*arguments) as transaction,
            transaction.update_spec() as update,
        ):
            for name in self.partition_by:
                update.add_identity(name)
        return catalog.load_table(self._identifier)

    @contextmanager
    def _open(self) -> Iterator[tuple[Any, Any]]:
        """The catalog, and the table or None before the first batch."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        properties = self._catalog or {
            "type": "sql",
            "uri": f"sqlite:///{self.path / HIDDEN / 'catalog.db'}",
            "warehouse": f"file://{self.path}",
        }
        catalog = load_catalog("tailrace", **properties)
        try:
            try:
                table = catalog.load_table(self._identifier)
            except NoSuchTableError:
                table = None
            yield catalog, table
        finally:
            catalog.close()


def _retyped_columns(schema: Any, wanted: SchemaJson) -> list[str]:
    """The columns, of the first level, that are of another type now."""
    before = {field["name"]: field["type"] for field in _spark_schema(schema)["fields"]}
    after = {field["name"]: field["type"] for field in wanted["fields"]}
    return [name for name, kind in before.items() if after.get(name, kind) != kind]


def _spark_schema(schema: Any) -> SchemaJson:
    from pyspark.sql.pandas.types import from_arrow_schema

    content: SchemaJson = from_arrow_schema(schema.as_arrow()).jsonValue()
    return content


def _arrow_schema(schema: SchemaJson) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(struct(schema), timezone="UTC")


def _library() -> Any:
    try:
        import pyiceberg.catalog.sql
    except ImportError:
        raise LibraryMissing("pyiceberg", "iceberg") from None
    return pyiceberg
