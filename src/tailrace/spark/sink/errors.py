"""
Why the sink of `format("tailrace")` stops, one class each, under one base.

    SinkError
      ColumnsInvalid       the DataFrame cannot be written as it is; noticed before anything runs
      TargetInvalid        a row does not say where to go
      ValueInvalid         a row is no message of its stream's type
      ValueTooLarge        a row is larger than a request may be
      TypesMixed           rows of one stream have two content types
      OrderUnknown         rows of one stream fill several requests, and nothing orders them
      PartitionsUnstable   Spark may change the number of partitions between attempts at a batch
      InputCut             what comes before the sink has failed: these are not all rows
      SinkFenced           403: a later batch of this sink is stored already
      SinkGap              409, 400: earlier requests of this very batch are not in the stream
      SinkClosed           409: the stream is closed
      TypeConflict         409: the stream has another content type
      StreamMissing        404
      BucketMissing        404
      StreamVanished       404 after the first request of a batch
      RequestTooLarge      413
      SinkUnauthorized     401, 403
      SinkRefused          any other refusal

Each pickles by its `args`: it is raised in a worker and shown by the driver.
"""

from tailrace.client import TailraceError

__all__ = [
    "BucketMissing",
    "ColumnsInvalid",
    "InputCut",
    "OrderUnknown",
    "PartitionsUnstable",
    "RequestTooLarge",
    "SinkClosed",
    "SinkError",
    "SinkFenced",
    "SinkGap",
    "SinkRefused",
    "SinkUnauthorized",
    "StreamMissing",
    "StreamVanished",
    "TargetInvalid",
    "TypeConflict",
    "TypesMixed",
    "ValueInvalid",
    "ValueTooLarge",
]


class SinkError(TailraceError):
    """A DataFrame cannot be written; what was stored of it before stays."""


class ColumnsInvalid(SinkError):
    """The DataFrame lacks a column, or has one of a type that cannot be written."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.reason}; the sink takes value (binary or string), and, if they are there, "
            "stream, bucket and content_type (string) and the columns of orderBy"
        )


class TargetInvalid(SinkError):
    """A row does not name a stream."""

    def __init__(self, partition: int, row: int, reason: str) -> None:
        super().__init__(partition, row, reason)
        self.partition = partition
        self.row = row
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.row} of partition {self.partition}: {self.reason}"


class ValueInvalid(SinkError):
    """A row's value is no message of its stream's type. Nothing of its request was stored."""

    def __init__(self, stream: str, partition: int, row: int, reason: str, start: str = "") -> None:
        super().__init__(stream, partition, row, reason, start)
        self.stream = stream
        self.partition = partition
        self.row = row
        self.reason = reason
        self.start = start
        """How the value begins."""

    def __str__(self) -> str:
        shown = f" (it begins {self.start})" if self.start else ""
        return (
            f"row {self.row} of partition {self.partition}, for the stream {self.stream}: "
            f"{self.reason}{shown}"
        )


class ValueTooLarge(SinkError):
    """One row is larger than a request may be."""

    def __init__(self, stream: str, partition: int, row: int, size: int, limit: int) -> None:
        super().__init__(stream, partition, row, size, limit)
        self.stream = stream
        self.partition = partition
        self.row = row
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"row {self.row} of partition {self.partition}, for the stream {self.stream}, has "
            f"{self.size} bytes and a request at most {self.limit}: raise maxRequestBytes, and the "
            "server's limit with it if need be"
        )


class TypesMixed(SinkError):
    """Rows of one stream have two content types."""

    def __init__(self, stream: str, first: str, other: str) -> None:
        super().__init__(stream, first, other)
        self.stream = stream
        self.first = first
        self.other = other

    def __str__(self) -> str:
        return (
            f"rows for the stream {self.stream} have the content types {self.first!r} and "
            f"{self.other!r}; a stream has one: write them to two streams"
        )


class OrderUnknown(SinkError):
    """Rows of one stream need several requests, which must be the same at every attempt."""

    def __init__(self, stream: str, content_type: str, limit: int) -> None:
        super().__init__(stream, content_type, limit)
        self.stream = stream
        self.content_type = content_type
        self.limit = limit

    def __str__(self) -> str:
        why = (
            f"rows of one partition for the stream {self.stream} are more than the {self.limit} "
            "bytes, or the million commas, of one request"
            if self.limit
            else f"several rows of one partition go to the stream {self.stream}, and each message "
            f"of {self.content_type!r} is a request of its own"
        )
        return (
            f"{why}; an attempt that is repeated could then send other rows under the same number. "
            "Set orderBy to columns that order the rows, or stableInput=true if they come in the "
            "same order at every attempt (no shuffle before), or write with more partitions"
        )


class PartitionsUnstable(SinkError):
    """After a restart, rows of a batch could lie in other partitions, and be lost or doubled."""

    def __init__(self, setting: str) -> None:
        super().__init__(setting)
        self.setting = setting

    def __str__(self) -> str:
        return (
            "Spark may cut a batch into other partitions when it is tried again, and rows would be "
            f'lost or doubled. Switch that off: spark.conf.set("{self.setting}", "false")'
        )


class InputCut(SinkError):
    """What comes before the sink has failed: its rows are a part of what they should be."""

    def __str__(self) -> str:
        return "the rows of this task ended early, because what comes before the sink has failed"


class SinkFenced(SinkError):
    """403: the stream has a later batch of this sink."""

    def __init__(self, stream: str, producer_id: str, epoch: int, held: int | None) -> None:
        super().__init__(stream, producer_id, epoch, held)
        self.stream = stream
        self.producer_id = producer_id
        self.epoch = epoch
        self.held = held

    def __str__(self) -> str:
        held = "a later one" if self.held is None else f"batch {self.held}"
        return (
            f"the stream {self.stream} refuses batch {self.epoch} of {self.producer_id!r}, because "
            f"it has {held} of it: the checkpoint was rolled back, or another query writes with "
            "the same sinkId, or this is a task that was given up and still ran. To write the "
            "rows once more on purpose, use a new checkpoint and another sinkId"
        )


class SinkGap(SinkError):
    """409 or 400: the requests of this batch that came before are not in the stream."""

    def __init__(self, stream: str, producer_id: str, epoch: int, seq: int) -> None:
        super().__init__(stream, producer_id, epoch, seq)
        self.stream = stream
        self.producer_id = producer_id
        self.epoch = epoch
        self.seq = seq

    def __str__(self) -> str:
        return (
            f"the stream {self.stream} has not what came before request {self.seq} of batch "
            f"{self.epoch} of {self.producer_id!r}: it was deleted and created anew meanwhile, or "
            "the server lost data. Running the batch again sends all of it"
        )


class SinkClosed(SinkError):
    """409: the stream is closed."""

    def __init__(self, stream: str, tail: str | None) -> None:
        super().__init__(stream, tail)
        self.stream = stream
        self.tail = tail

    def __str__(self) -> str:
        where = f" at {self.tail}" if self.tail else ""
        return (
            f"the stream {self.stream} is closed{where} and takes no more: filter its rows out, or "
            "write them to another stream"
        )


class TypeConflict(SinkError):
    """409: the stream has another content type than the rows."""

    def __init__(self, stream: str, content_type: str, detail: str) -> None:
        super().__init__(stream, content_type, detail)
        self.stream = stream
        self.content_type = content_type
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"rows of {self.content_type!r} cannot go to the stream {self.stream}: {self.detail}. "
            "Set the option contentType, or a column content_type, to what the stream is"
        )


class StreamMissing(SinkError):
    """404: there is no such stream."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.stream = stream

    def __str__(self) -> str:
        return (
            f"there is no stream {self.stream}: create it, or let the sink do that with "
            "createStreams=true"
        )


class BucketMissing(SinkError):
    """404: there is no such bucket."""

    def __init__(self, bucket: str, stream: str) -> None:
        super().__init__(bucket, stream)
        self.bucket = bucket
        self.stream = stream

    def __str__(self) -> str:
        return (
            f"the stream {self.stream} cannot be created, because there is no bucket "
            f"{self.bucket!r}: create it, or let the sink do that with createBuckets=true"
        )


class StreamVanished(SinkError):
    """404 after the first request of a batch: the stream was deleted, or has expired."""

    def __init__(self, stream: str, seq: int) -> None:
        super().__init__(stream, seq)
        self.stream = stream
        self.seq = seq

    def __str__(self) -> str:
        return (
            f"the stream {self.stream} was deleted, or has expired, after {self.seq} requests of "
            "this batch. Running the batch again writes all of it, to a stream that is there or, "
            "with createStreams=true, to a new one"
        )


class RequestTooLarge(SinkError):
    """413: the server takes smaller requests only."""

    def __init__(self, stream: str, size: int, detail: str) -> None:
        super().__init__(stream, size, detail)
        self.stream = stream
        self.size = size
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"a request of {self.size} bytes is too large for the server of {self.stream} "
            f"({self.detail}): raise the server's limit. Lower maxRequestBytes instead only "
            "before the first attempt at a batch, or what was stored of it is cut otherwise"
        )


class SinkUnauthorized(SinkError):
    """401 or 403: the token is missing, wrong, or does not suffice."""

    def __init__(self, stream: str, status: int, detail: str) -> None:
        super().__init__(stream, status, detail)
        self.stream = stream
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"writing to the stream {self.stream} is not allowed ({self.status}: "
            f"{self.detail or 'no reason given'}): check the options token and headers"
        )


class SinkRefused(SinkError):
    """The server refused for another reason."""

    def __init__(self, stream: str, status: int, detail: str) -> None:
        super().__init__(stream, status, detail)
        self.stream = stream
        self.status = status
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"the server refused to write to the stream {self.stream} ({self.status}): "
            f"{self.detail or 'no reason given'}"
        )
