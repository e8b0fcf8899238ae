"""
The sink of `format("tailrace")`: every row a message, exactly once.

Rule 1: what a task sends says which request of which batch it is (§5.2.1), so that a server stores
it once, however often and by however many attempts it is sent:

    Producer-Id      {sinkId, or the query's id}/{partition}
    Producer-Epoch   the batch's id: it grows, so what a later batch has overtaken gets a 403
    Producer-Seq     0, 1, 2 … for each target stream of this batch and partition

A batch write without a `sinkId` has an id of its own, made on the driver: its tasks may be tried
again, or twice at once, but running the write again writes again.

Rule 2: the rows of one request are the same at every attempt: see `ordering` and `cutting`. That
takes the same rows in the same partitions; both Spark's own retries and a rerun from a checkpoint
give that, as long as the query and its number of partitions are the same. Where Spark may choose
that number anew for each batch, as it does unless told otherwise, nothing is written. Rows that
stop coming because a task fails are not taken for all of them: see `endings`.

What numbers cannot tell: a checkpoint that is set back plans batches anew, perhaps with other rows
and under numbers that streams have. Of the last batch those are taken for the old ones. From two
batches back it is an error, `SinkFenced`, wherever a partition meets a stream that it wrote before;
a stream that comes to lie in another partition has a producer that does not know better.

Rule 3: nothing is undone. A batch that fails leaves what it stored; the same batch again completes
it.

Within a stream, a partition's rows are in the order of `orderBy`, or else as they came. Rows of one
stream that lie in several partitions are not ordered between these: `repartition` by the stream
first, if that matters.
"""

import logging
from collections.abc import Iterable, Iterator
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
from tailrace.spark.options import OptionInvalid, WriteOptions
from tailrace.spark.sink.append_requests import Append, Appender
from tailrace.spark.sink.bodies import body_of
from tailrace.spark.sink.chunking import Cutter
from tailrace.spark.sink.columns import Shape
from tailrace.spark.sink.complete_input import until_the_end
from tailrace.spark.sink.errors import PartitionsUnstable
from tailrace.spark.sink.parallel_sender import Lanes
from tailrace.spark.sink.sorting import RowOrder
from tailrace.spark.source.catalog import connect

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["TailraceStreamWriter", "TailraceWriter", "Written"]

_log = logging.getLogger(__name__)

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
_ADAPTIVE: Final = "spark.sql.adaptive.streaming.stateless.enabled"
_COMPLETES: Final = "Running the same batch again completes it, and stores nothing twice."
_WRITES_AGAIN: Final = (
    "Running it again would store that once more: with a sinkId and a batchId it would complete it."
)
# "/" and the largest number of a partition.
_SINK_ID_BYTES_MAX: Final = PRODUCER_ID_BYTES_MAX - len("/2147483647")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has stored."""

    partition: int
    streams: int
    requests: int
    duplicates: int
    """Requests that an earlier attempt had stored."""


class TailraceWriter(DataSourceArrowWriter):
    """
    Writes a DataFrame once.

    Raises:
        ColumnsInvalid: The DataFrame cannot be written.
        OptionInvalid: An option cannot have its value.
    """

    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        if options.sink_id is not None and options.batch_id is None:
            raise OptionInvalid(
                "sinkId",
                "of a batch write needs a batchId: without one, the next write with this id would "
                "be taken for this one, and dropped",
            )
        self._partition = _Partition(options, schema)
        self._is_named = options.sink_id is not None
        self._sink_id = _checked_id(options.sink_id or f"spark-{uuid4().hex}")
        self._epoch = _checked_epoch(options.batch_id or 0)

    def write(self, iterator: Iterator[Any]) -> Written:
        context = TaskContext.get()
        # Without Spark, there is one partition.
        partition = 0 if context is None else context.partitionId()
        rows = iterator if context is None else until_the_end(iterator)
        return self._partition.write(self._sink_id, self._epoch, partition, rows)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: what a task has written is stored."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._is_named:
            _tell_aborted(f"batch {self._epoch} of {self._sink_id!r}", _COMPLETES, messages)
        else:
            _tell_aborted("the write", _WRITES_AGAIN, messages)


class TailraceStreamWriter(DataSourceStreamArrowWriter):
    """
    Writes the batches of a streaming query.

    Raises:
        ColumnsInvalid: The DataFrame cannot be written.
        OptionInvalid: An option cannot have its value.
    """

    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        if options.batch_id is not None:
            raise OptionInvalid("batchId", "has no meaning for a streaming query, which counts")
        if options.sink_id is not None:
            _checked_id(options.sink_id)
        self._partition = _Partition(options, schema)
        self._sink_id = options.sink_id

    def write(self, iterator: Iterator[Any]) -> Written:
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a batch of a streaming query is written by a task of Spark only")
        # `write` is not told the batch, but the task knows it. The query's id is the same after a
        # restart; those of runs, stages and attempts are not.
        batch_id = context.getLocalProperty(_BATCH_ID)
        sink_id = self._sink_id or context.getLocalProperty(_QUERY_ID)
        if batch_id is None or sink_id is None:
            raise RuntimeError(
                f"this version of Spark does not tell tasks {_BATCH_ID}, {_QUERY_ID}"
            )
        if context.getLocalProperty(_ADAPTIVE) != "false":
            raise PartitionsUnstable(_ADAPTIVE)
        epoch = _checked_epoch(int(batch_id))
        rows = until_the_end(iterator)
        return self._partition.write(sink_id, epoch, context.partitionId(), rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: what a task has written is stored."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _tell_aborted(f"batch {batchId}", _COMPLETES, messages)


class _Partition:
    """How one partition of a DataFrame is written; goes to the workers."""

    def __init__(self, options: WriteOptions, schema: "StructType") -> None:
        self._options = options
        self._shape = Shape.of(options, schema)

    def write(self, sink_id: str, epoch: int, partition: int, batches: Iterable[Any]) -> Written:
        options = self._options
        rows = self._shape.rows(partition, batches)
        cutter = Cutter(options, self._shape, partition)
        with (
            connect(options) as client,
            RowOrder(self._shape.keys, options.buffer_bytes) as order,
        ):
            lanes = Lanes(Appender(client, options).send)
            try:
                for chunk in cutter.cut(self._ordered(rows, order)):
                    claim = ProducerClaim(f"{sink_id}/{partition}", epoch, chunk.seq)
                    body = body_of(chunk, partition)
                    lanes.put(Append(chunk.name, chunk.content_type, claim, body))
                lanes.finish()
            finally:
                lanes.close()
        return Written(partition, cutter.streams, lanes.requests, lanes.duplicates)

    def _ordered(self, rows: Iterator[Any], order: RowOrder) -> Iterator[Any]:
        if self._shape.comes_in_order:
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


def _tell_aborted(what: str, rerun: str, messages: list[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, Written)]
    requests = sum(message.requests for message in done)
    _log.warning(
        "%s failed. %d of %d tasks had finished: their %d requests are stored, and perhaps some of "
        "the others'. Nothing is taken back. %s",
        *(what, len(done), len(messages), requests, rerun),
    )
