"""
The sink of `format("tailrace")`: stores every row as a message, exactly once.

Rule 1: a request names its batch and its number in it (§5.2.1), so a server stores it once,
however often it is sent:

    Producer-Id      {sinkId, or the query's id}/{partition}
    Producer-Epoch   the batch's id: it grows, so a request of an earlier batch gets a 403
    Producer-Seq     0, 1, 2 … for each target stream of this batch and partition

A batch write without a `sinkId` gets a random id on the driver: its tasks may be retried, or run
twice at once, but running the write again stores the rows again.

Rule 2: the rows of a request are the same at every attempt: see `sorting` and `chunking`. This
needs the same rows in the same partitions. Spark's retries and a restart from a checkpoint provide
this if the query and its number of partitions stay the same. If Spark may change that number for
each batch, which is its default, the sink writes nothing. Input that ends early because a task
fails is detected: see `complete_input`.

Not detected: a checkpoint that is set back plans new batches, possibly with other rows, under
numbers that streams already have. For the last batch, the server takes them for the old rows. From
two batches back it is an error, `SinkFenced`, if a partition writes to a stream that it wrote
before; a stream that moved to another partition has another producer.

Rule 3: nothing is undone. A failed batch leaves what it stored; running it again completes it.

Within a stream, the rows of a partition are in the order of `orderBy`, or else of arrival. Rows of
one stream in several partitions have no order between them: `repartition` by the stream first.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tailrace.client import ProducerClaim
from tailrace.protocol.limits import PRODUCER_ID_BYTES_MAX, PRODUCER_INTEGER_MAX
from tailrace.spark.connection import connect
from tailrace.spark.options import OptionInvalid, WriteOptions
from tailrace.spark.sink.append_requests import Appender, AppendRequest
from tailrace.spark.sink.bodies import encode_body
from tailrace.spark.sink.chunking import RowChunker
from tailrace.spark.sink.columns import SinkColumns
from tailrace.spark.sink.complete_input import complete_input
from tailrace.spark.sink.errors import PartitionsUnstable
from tailrace.spark.sink.parallel_sender import ParallelSender
from tailrace.spark.sink.sorting import ExternalSort

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["TailraceStreamWriter", "TailraceWriter", "TaskSummary"]

_log = logging.getLogger(__name__)

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
_ADAPTIVE: Final = "spark.sql.adaptive.streaming.stateless.enabled"
_COMPLETES: Final = "Running the same batch again completes it, and stores nothing twice."
_WRITES_AGAIN: Final = (
    "Running it again stores these rows twice; with a sinkId and a batchId it would complete it."
)
# Leaves room for "/" and the largest partition number.
_SINK_ID_BYTES_MAX: Final = PRODUCER_ID_BYTES_MAX - len("/2147483647")


@dataclass(frozen=True)
class TaskSummary(WriterCommitMessage):
    """The requests that a task has stored."""

    partition: int
    streams: int
    requests: int
    duplicates: int
    """Requests that an earlier attempt had stored."""


class TailraceWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        if options.sink_id is not None and options.batch_id is None:
            raise OptionInvalid(
                "sinkId",
                "of a batch write needs a batchId: without one, the next write with this id would "
                "be taken for a repetition of this one, and dropped",
            )
        self._writer = _PartitionWriter(options, schema)
        self._is_named = options.sink_id is not None
        self._sink_id = _checked_id(options.sink_id or f"spark-{uuid4().hex}")
        self._epoch = _checked_epoch(options.batch_id or 0)

    def write(self, iterator: Iterator[Any]) -> TaskSummary:
        context = TaskContext.get()
        # Outside of Spark there is one partition.
        partition = 0 if context is None else context.partitionId()
        rows = iterator if context is None else complete_input(iterator)
        return self._writer.write(self._sink_id, self._epoch, partition, rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: the rows of a finished task are stored."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._is_named:
            _log_aborted(f"batch {self._epoch} of {self._sink_id!r}", _COMPLETES, messages)
        else:
            _log_aborted("the write", _WRITES_AGAIN, messages)


class TailraceStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        if options.batch_id is not None:
            raise OptionInvalid("batchId", "has no meaning for a streaming query")
        if options.sink_id is not None:
            _checked_id(options.sink_id)
        self._writer = _PartitionWriter(options, schema)
        self._sink_id = options.sink_id

    def write(self, iterator: Iterator[Any]) -> TaskSummary:
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a batch of a streaming query must be written by a task of Spark")
        # The batch is not an argument, but a property of the task. The query's id is the same
        # after a restart; those of runs, stages and attempts are not.
        batch_id = context.getLocalProperty(_BATCH_ID)
        sink_id = self._sink_id or context.getLocalProperty(_QUERY_ID)
        if batch_id is None or sink_id is None:
            raise RuntimeError(
                f"tasks of this version of Spark do not have {_BATCH_ID} and {_QUERY_ID}"
            )
        if context.getLocalProperty(_ADAPTIVE) != "false":
            raise PartitionsUnstable(_ADAPTIVE)
        epoch = _checked_epoch(int(batch_id))
        rows = complete_input(iterator)
        return self._writer.write(sink_id, epoch, context.partitionId(), rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: the rows of a finished task are stored."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log_aborted(f"batch {batchId}", _COMPLETES, messages)


class _PartitionWriter:
    """Writes one partition of a DataFrame, on a worker."""

    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        self._options = options
        self._columns = SinkColumns.of(options, schema)

    def write(
        self, sink_id: str, epoch: int, partition: int, batches: Iterable[Any]
    ) -> TaskSummary:
        options = self._options
        rows = self._columns.rows(partition, batches)
        chunker = RowChunker(options, self._columns, partition)
        with (
            connect(options) as client,
            closing(ExternalSort(self._columns.keys, options.buffer_bytes)) as order,
        ):
            sender = ParallelSender(Appender(client, options).send)
            try:
                for chunk in chunker.chunks(self._ordered(rows, order)):
                    claim = ProducerClaim(f"{sink_id}/{partition}", epoch, chunk.seq)
                    body = encode_body(chunk, partition)
                    sender.put(AppendRequest(chunk.name, chunk.content_type, claim, body))
                sender.finish()
            finally:
                sender.close()
        return TaskSummary(partition, chunker.streams, sender.requests, sender.duplicates)

    def _ordered(self, rows: Iterator[Any], order: ExternalSort) -> Iterator[Any]:
        if self._columns.comes_in_order:
            return rows
        for batch in rows:
            order.add(batch)
        return order.sorted()


def _checked_id(sink_id: str) -> str:
    is_text = sink_id.isascii() and sink_id.isprintable() and sink_id == sink_id.strip()
    if not is_text or not 1 <= len(sink_id) <= _SINK_ID_BYTES_MAX:
        raise OptionInvalid(
            "sinkId", f"must be printable ASCII, {_SINK_ID_BYTES_MAX} characters at most"
        )
    return sink_id


def _checked_epoch(batch_id: int) -> int:
    if not 0 <= batch_id <= PRODUCER_INTEGER_MAX:
        raise OptionInvalid("batchId", f"must be at most {PRODUCER_INTEGER_MAX}")
    return batch_id


def _log_aborted(what: str, rerun: str, messages: list[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, TaskSummary)]
    requests = sum(message.requests for message in done)
    _log.warning(
        "%s failed. %d of %d tasks had finished: their %d requests are stored, and possibly some "
        "of the others. Stored requests are not undone. %s",
        *(what, len(done), len(messages), requests, rerun),
    )
