"""
`format("tailrace")`: streams as DataFrames, batch and streaming, and DataFrames as streams.

The driver plans (`planning`, over a `catalog` of streams), tasks read (`reading`, or `plain` from
other servers of the protocol) and write (`sink`).
"""

from collections.abc import Iterator, Sequence
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

from tailrace.spark.options import (
    OptionInvalid,
    ReadOptions,
    read_options,
    write_options,
)
from tailrace.spark.source.bulk_read import Builder, read_spans
from tailrace.spark.source.catalog import Catalog, connect
from tailrace.spark.source.catch_up_read import read_plain
from tailrace.spark.source.columns import (
    Columns,
    check_source_schema,
    default_schema,
    is_source_schema,
)
from tailrace.spark.source.offset_ranges import Span
from tailrace.spark.source.planning import Partition, Planner
from tailrace.spark.source.read_positions import Marks, dump_marks, load_marks
from tailrace.spark.source.typed_columns import TypedColumns

__all__ = ["TailraceDataSource"]


class TailraceDataSource(DataSource):
    """The source and the sink, by their options."""

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
            raise OptionInvalid("mode", "overwrite is not known: streams only grow, use append")
        return TailraceWriter(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tailrace.spark.sink.writer import TailraceStreamWriter

        if overwrite:
            raise OptionInvalid("outputMode", "must be append: streams only grow")
        return TailraceStreamWriter(write_options(self.options), schema)


class _Reader:
    """What both readers do in a task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        if is_source_schema(schema):
            check_source_schema(schema)

    def _builder(self) -> Builder:
        kind = Columns if is_source_schema(self._schema) else TypedColumns
        return kind(self._schema, self._options.bucket)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Partition):
            # Where nothing is planned, Spark runs one task all the same.
            return iter(())
        read = read_spans if partition.ours else read_plain
        return read(self._options, self._builder(), partition.spans)


class _BatchReader(_Reader, DataSourceReader):
    """`spark.read`: all that there is between two sets of offsets, as of its planning."""

    def partitions(self) -> Sequence[InputPartition]:
        with connect(self._options) as client:
            planner = Planner(Catalog(client, self._options), self._options)
            planner.catalog.refresh()
            planner.check_found()
            return planner.partitions(planner.spans(planner.starts(), planner.ends()))


class _StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`: micro-batches from mark to mark."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.ending != "latest" or options.ending_ms is not None:
            raise OptionInvalid("endingOffsets", "has no meaning for a stream, which has no end")
        self._made: Planner | None = None
        # Of the last micro-batch planned: where it ends, and what lay beyond that.
        self._end: Marks | None = None
        self._behind: dict[str, Span] = {}
        self._frozen = False

    def __getstate__(self) -> dict[str, Any]:
        """For tasks, which read and plan nothing: without the driver's connection and marks."""
        return {**self.__dict__, "_made": None, "_end": None, "_behind": {}}

    def _planner(self) -> Planner:
        if self._made is None:
            self._made = Planner(Catalog(connect(self._options), self._options), self._options)
        return self._made

    def initialOffset(self) -> dict[str, Any]:
        planner = self._planner()
        planner.catalog.refresh()
        planner.check_found()
        return dump_marks(planner.first_marks())

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark knows one limit at a time; `latestOffset` obeys both.
        if self._options.max_messages is not None:
            return ReadMaxRows(self._options.max_messages)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner().catalog.refresh()
        self._frozen = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        planner = self._planner()
        marks = load_marks(start)
        changed = set[str]() if self._frozen else planner.catalog.refresh()
        if marks == self._end:
            candidates = self._behind.keys() | changed
        else:
            # The first micro-batch of this run: anything may be behind.
            candidates = planner.catalog.seen.keys() | marks.keys()
        spans, kept = planner.behind(marks, candidates)
        limited = not isinstance(limit, ReadAllAvailable)
        self._end = planner.advance(kept, spans, limited=limited)
        self._behind = {span.stream: span for span in planner.left(spans, self._end)}
        return dump_marks(self._end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the query is behind the tails: shown as `latestOffset` of its progress."""
        left = [span for span in self._behind.values() if span.ours]
        return {
            "streamsBehind": len(self._behind),
            "messagesBehind": sum(span.messages for span in left),
            "bytesBehind": sum(span.bytes for span in left),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planner, marks = self._planner(), load_marks(end)
        spans = planner.between(load_marks(start), marks)
        if self._end is None:
            # A batch of an earlier run, to be read again: nothing was planned yet.
            if not self._frozen:
                planner.catalog.refresh()
            planner.check_same(marks, spans)
        return planner.partitions(spans)

    def stop(self) -> None:
        if self._made is not None:
            self._made.catalog.client.close()
