"""The errors of the sink of `format("tailrace")`, under one base."""

from tailrace.exceptions import ExitCode, TailraceError

__all__ = [
    "BucketMissing",
    "ColumnsInvalid",
    "InputTruncated",
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
    """A DataFrame cannot be written. Requests that were stored before the error stay stored."""


class ColumnsInvalid(SinkError):
    """The DataFrame lacks a column, or has one of a type that cannot be written."""

    message = (
        "{reason}; the sink takes value (binary or string) and, optionally, "
        "stream, bucket and content_type (string) and the columns of orderBy"
    )
    reason: str


class TargetInvalid(SinkError):
    """A row does not name a valid stream."""

    message = "row {row} of partition {partition}: {reason}"
    partition: int
    row: int
    reason: str


class ValueInvalid(SinkError):
    """A row is not a valid message of its stream's type. No row of its request was stored."""

    message = "row {row} of partition {partition}, for the stream {stream}: {reason}"
    stream: str
    partition: int
    row: int
    reason: str
    start: str = ""
    """The beginning of the value."""

    def __str__(self) -> str:
        return super().__str__() + (f" (it begins {self.start})" if self.start else "")


class ValueTooLarge(SinkError):
    """One row is larger than the largest request."""

    message = (
        "row {row} of partition {partition}, for the stream {stream}, has {size} bytes and a "
        "request at most {limit}: raise maxRequestBytes, and the server's limit if necessary"
    )
    stream: str
    partition: int
    row: int
    size: int
    limit: int


class TypesMixed(SinkError):
    """Rows of one stream have two content types."""

    message = (
        "rows for the stream {stream} have the content types {first!r} and {other!r}; "
        "a stream has one: write them to two streams"
    )
    stream: str
    first: str
    other: str


class OrderUnknown(SinkError):
    """Rows of one stream need several requests, which must be the same at every attempt."""

    stream: str
    content_type: str
    limit: int
    """The size of the largest request; 0 if each row is a request."""

    def __str__(self) -> str:
        why = (
            f"rows of one partition for the stream {self.stream} are more than the {self.limit} "
            "bytes, or the million messages, of one request"
            if self.limit
            else f"several rows of one partition go to the stream {self.stream}, and each message "
            f"of {self.content_type!r} is a request of its own"
        )
        return (
            f"{why}; a repeated attempt could send other rows under the same number. "
            "Set orderBy to columns that order the rows, or stableInput=true if they come in the "
            "same order at every attempt (no shuffle before), or write with more partitions"
        )


class PartitionsUnstable(SinkError):
    """After a restart, rows of a batch could be in other partitions, and be lost or duplicated."""

    message = (
        "Spark may divide a batch into other partitions when it is retried, and rows would be "
        'lost or duplicated. Switch this off: spark.conf.set("{setting}", "false")'
    )
    setting: str


class InputTruncated(SinkError):
    """An earlier step of the task failed, so some rows did not arrive."""

    message = "the rows of this task ended early, because a step before the sink failed"


class SinkFenced(SinkError):
    """403: the stream has a later batch of this sink."""

    exit_code = ExitCode.CONFLICT
    stream: str
    producer_id: str
    epoch: int
    held: int | None

    def __str__(self) -> str:
        held = "a later one" if self.held is None else f"batch {self.held}"
        return (
            f"the stream {self.stream} refuses batch {self.epoch} of {self.producer_id!r}, because "
            f"it already has {held}: the checkpoint was rolled back, another query writes with "
            "the same sinkId, or this task was replaced and still ran. To write the rows "
            "again on purpose, use a new checkpoint and another sinkId"
        )


class SinkGap(SinkError):
    """409 or 400: the earlier requests of this batch are not in the stream."""

    message = (
        "the stream {stream} lacks the requests before request {seq} of batch {epoch} of "
        "{producer_id!r}: it was deleted and created again, or the server lost data. "
        "Running the batch again sends all of it"
    )
    exit_code = ExitCode.CONFLICT
    stream: str
    producer_id: str
    epoch: int
    seq: int


class SinkClosed(SinkError):
    """409: the stream is closed."""

    exit_code = ExitCode.CONFLICT
    stream: str
    tail: str | None

    def __str__(self) -> str:
        where = f" at {self.tail}" if self.tail else ""
        return (
            f"the stream {self.stream} is closed{where} and accepts no more messages: filter its "
            "rows out, or write them to another stream"
        )


class TypeConflict(SinkError):
    """409: the stream has another content type than the rows."""

    message = (
        "rows of {content_type!r} cannot go to the stream {stream}: {detail}. "
        "Set the option contentType, or a column content_type, to the type of the stream"
    )
    exit_code = ExitCode.CONFLICT
    stream: str
    content_type: str
    detail: str


class StreamMissing(SinkError):
    """404: there is no such stream."""

    message = "there is no stream {stream}: create it, or set createStreams=true"
    exit_code = ExitCode.NOT_FOUND
    stream: str


class BucketMissing(SinkError):
    """404: there is no such bucket."""

    message = (
        "the stream {stream} cannot be created, because there is no bucket {bucket!r}: "
        "create it, or set createBuckets=true"
    )
    exit_code = ExitCode.NOT_FOUND
    bucket: str
    stream: str


class StreamVanished(SinkError):
    """404 after the first request of a batch: the stream was deleted, or has expired."""

    message = (
        "the stream {stream} was deleted, or has expired, after {seq} requests of this batch. "
        "Running the batch again writes all of it, to an existing stream or, with "
        "createStreams=true, to a new one"
    )
    exit_code = ExitCode.NOT_FOUND
    stream: str
    seq: int


class RequestTooLarge(SinkError):
    """413: the server accepts smaller requests only."""

    message = (
        "a request of {size} bytes is too large for the server of {stream} ({detail}): raise the "
        "server's limit. Lower maxRequestBytes instead only before the first attempt at a batch: "
        "later attempts must send the same requests"
    )
    stream: str
    size: int
    detail: str


class SinkUnauthorized(SinkError):
    """401 or 403: the token is missing, wrong, or not sufficient."""

    message = (
        "writing to the stream {stream} is not allowed ({status}: {detail}): "
        "check the options token and headers"
    )
    exit_code = ExitCode.UNAUTHORIZED
    stream: str
    status: int
    detail: str


class SinkRefused(SinkError):
    """The server refused for another reason."""

    message = "the server refused to write to the stream {stream} ({status}): {detail}"
    stream: str
    status: int
    detail: str
