"""
`format("tailrace")`: streams as DataFrames, batch and streaming, and DataFrames as streams.

The driver plans (`planning`, from a `catalog` of streams). Tasks read (`bulk_read`, or
`catch_up_read` from other servers of the protocol) and write (`sink`).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tailrace.spark.connection import connect
from tailrace.spark.options import (
    OptionInvalid,
    ReadOptions,
    read_options,
    write_options,
)
from tailrace.spark.source.bulk_read import RowBuilder, read_bulk
from tailrace.spark.source.catalog import Catalog
from tailrace.spark.source.catch_up_read import read_catch_up
from tailrace.spark.source.columns import (
    SourceColumns,
    check_source_schema,
    default_schema,
    is_source_schema,
)
from tailrace.spark.source.offset_ranges import OffsetRange
from tailrace.spark.source.planning import Planner, SourcePartition
from tailrace.spark.source.read_positions import ReadPositions, dump_positions, load_positions
from tailrace.spark.source.typed_columns import TypedColumns

__all__ = ["TailraceDataSource"]


class TailraceDataSource(DataSource):
    """The source and the sink of `format("tailrace")`."""

    @classmethod
    def name(cls) -> str:
        return "tailrace"

    def schema(self) -> StructType:
        return default_schema(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tailrace.spark.sink.writer import TailraceWriter

        if overwrite:
            raise OptionInvalid("mode", "must be append: streams are append-only")
        return TailraceWriter(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tailrace.spark.sink.writer import TailraceStreamWriter

        if overwrite:
            raise OptionInvalid("outputMode", "must be append: streams are append-only")
        return TailraceStreamWriter(write_options(self.options), schema)


class _SourceReader:
    """The part of both readers that runs in a task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        if is_source_schema(schema):
            check_source_schema(schema)

    def _builder(self) -> RowBuilder:
        kind = SourceColumns if is_source_schema(self._schema) else TypedColumns
        return kind(self._schema, self._options.bucket)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SourcePartition):
            # Spark runs one task even if there is no partition.
            return iter(())
        read = read_bulk if partition.is_tailrace else read_catch_up
        return read(self._options, self._builder(), partition.ranges)


class _BatchReader(_SourceReader, DataSourceReader):
    """`spark.read`: all messages between two sets of offsets, as of the planning."""

    def partitions(self) -> Sequence[InputPartition]:
        with connect(self._options) as client:
            planner = Planner(Catalog(client, self._options), self._options)
            planner.catalog.refresh()
            planner.check_found()
            return planner.partitions(planner.ranges(planner.starts(), planner.ends()))


class _StreamReader(_SourceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`: micro-batches."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.ending != "latest" or options.ending_ms is not None:
            raise OptionInvalid("endingOffsets", "has no meaning for a streaming query")
        # The end of the last planned micro-batch, and the unread ranges beyond it.
        self._end: ReadPositions | None = None
        self._behind: dict[str, OffsetRange] = {}
        self._frozen = False

    def __getstate__(self) -> dict[str, Any]:
        """Tasks do not plan: they need neither the driver's connection nor its positions."""
        state = {**self.__dict__, "_end": None, "_behind": {}}
        state.pop("_planner", None)
        return state

    @cached_property
    def _planner(self) -> Planner:
        return Planner(Catalog(connect(self._options), self._options), self._options)

    def initialOffset(self) -> dict[str, Any]:
        planner = self._planner
        planner.catalog.refresh()
        planner.check_found()
        return dump_positions(planner.first_positions())

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark has one limit at a time; `latestOffset` applies both.
        if self._options.max_messages is not None:
            return ReadMaxRows(self._options.max_messages)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.catalog.refresh()
        self._frozen = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        planner = self._planner
        positions = load_positions(start)
        changed = set[str]() if self._frozen else planner.catalog.refresh()
        if positions == self._end:
            candidates = self._behind.keys() | changed
        else:
            # The first micro-batch of this run: any stream may have unread messages.
            candidates = planner.catalog.streams.keys() | positions.keys()
        ranges, kept = planner.unread(positions, candidates)
        limited = not isinstance(limit, ReadAllAvailable)
        self._end = planner.advance(kept, ranges, limited=limited)
        self._behind = {each.stream: each for each in planner.remaining(ranges, self._end)}
        return dump_positions(self._end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The backlog of the query, shown as `latestOffset` of its progress."""
        left = [each for each in self._behind.values() if each.is_tailrace]
        return {
            "streamsBehind": len(self._behind),
            "messagesBehind": sum(each.messages for each in left),
            "bytesBehind": sum(each.bytes for each in left),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planner, positions = self._planner, load_positions(end)
        ranges = planner.between(load_positions(start), positions)
        if self._end is None:
            # A batch of an earlier run that is read again: this run has not planned yet.
            if not self._frozen:
                planner.catalog.refresh()
            planner.check_same(positions, ranges)
        return planner.partitions(ranges)

    def stop(self) -> None:
        if "_planner" in self.__dict__:
            self._planner.catalog.client.close()
