"""
The options of `format("tailrace")`: one table for parsing and for `docs/spark.md`.

Rule 1: a name that is not in the table is an error. A misspelt `startingOffset` that is silently
ignored would read the wrong messages.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec

from tailrace.exceptions import ExitCode, TailraceError

__all__ = [
    "EARLIEST",
    "LATEST",
    "OPTIONS",
    "ConnectionOptions",
    "Option",
    "OptionInvalid",
    "ReadOptions",
    "WriteOptions",
    "data_source_options",
    "read_options",
    "write_options",
]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

T = TypeVar("T")


class OptionInvalid(TailraceError, ValueError):
    """An option has an invalid value, is missing, or does not exist."""

    message = "option {name!r} {reason}"
    exit_code = ExitCode.USAGE
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """The URL of a server, and how requests to it are sent."""

    url: str
    token: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class ReadOptions(ConnectionOptions):
    """The options of a read."""

    bucket: str | None = None
    stream: str | None = None
    streams: tuple[str, ...] = ()
    prefix: str = ""
    pattern: str | None = None
    starting: str | Mapping[str, str] = EARLIEST
    starting_ms: int | None = None
    ending: str | Mapping[str, str] = LATEST
    ending_ms: int | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    min_partitions: int | None = None
    partition_bytes: int = 128 << 20
    fail_on_data_loss: bool = True
    bootstrap: bool = False
    value: str = "binary"

    @property
    def names(self) -> tuple[str, ...]:
        """The streams that are named one by one; empty if the streams of a bucket are listed."""
        return (self.stream,) if self.stream is not None else self.streams


@dataclass(frozen=True, kw_only=True)
class WriteOptions(ConnectionOptions):
    """The options of a write."""

    bucket: str | None = None
    stream: str | None = None
    create_streams: bool = False
    create_buckets: bool = False
    content_type: str = "application/json"
    ttl_s: int | None = None
    sink_id: str | None = None
    batch_id: int | None = None
    order_by: str | None = None
    stable_input: bool = False
    max_request_bytes: int = 4 << 20
    buffer_bytes: int = 64 << 20


@dataclass(frozen=True)
class _Kind:
    """The values of an option: what they must be, and the conversion from text."""

    requirement: str
    convert: Callable[[str], Any]
    pattern: str = "(?s).*"

    def parse(self, name: str, value: str) -> Any:
        try:
            if re.fullmatch(self.pattern, value):
                return self.convert(value)
        except (ValueError, OverflowError, msgspec.DecodeError):
            pass
        raise OptionInvalid(name, f"must {self.requirement}, not {value[:80]!r}")


@dataclass(frozen=True)
class Option:
    """One option: its name, the field it is parsed into, and its documentation."""

    name: str
    field: str
    kind: _Kind
    use: str
    """read, write or both."""
    help: str


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0 < seconds < 86_400:
        raise ValueError
    return seconds


def _moment(value: str) -> int:
    """Milliseconds since 1970, or an ISO 8601 time; UTC if it has no zone."""
    if value.isascii() and value.isdecimal():
        return int(value)
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _names(value: str) -> tuple[str, ...]:
    found = [name.strip() for name in value.split(",")]
    if value.lstrip().startswith("["):
        found = msgspec.json.decode(value, type=list[str])
    if not found or not all(found):
        raise ValueError
    return tuple(dict.fromkeys(found))


_object: Final = msgspec.json.Decoder(dict[str, str]).decode


def _starts_or_ends(value: str) -> str | dict[str, str]:
    return value if value in (EARLIEST, LATEST) else _object(value)


_TEXT: Final = _Kind("not be empty", str, "(?s).+")
_FLAG: Final = _Kind("be true or false", lambda value: value.lower() == "true", "(?i)true|false")
_COUNT: Final = _Kind("be an integer, 1 or more", int, "0*[1-9][0-9]*")
_NUMBER: Final = _Kind("be an integer, 0 or more", int, "[0-9]+")
_VALUE_TYPE: Final = _Kind("be one of binary, text", str, "binary|text")
_SECONDS: Final = _Kind("be a number of seconds", _seconds)
_TIME: Final = _Kind("be a time, as 2026-01-31T12:00:00Z, or milliseconds since 1970", _moment)
_NAMES: Final = _Kind("be comma-separated names, or a JSON array of names", _names)
_OBJECT: Final = _Kind("be a JSON object of strings", _object)
_OFFSETS: Final = _Kind(
    'be earliest, latest, or a JSON object of offsets, as {"my-stream": "-1"}', _starts_or_ends
)

OPTIONS: Final = (
    Option("url", "url", _TEXT, "both", "The server, as `http://127.0.0.1:4437`. Required."),
    Option("token", "token", _TEXT, "both", "Sent as `Authorization: Bearer …`."),
    Option("headers", "headers", _OBJECT, "both", "More headers, as a JSON object."),
    Option("timeout", "timeout_s", _SECONDS, "both",
           "A request fails after this many seconds without data."),
    Option("bucket", "bucket", _TEXT, "both",
           "The bucket of the streams. Without it, streams are paths under `/v1/stream/`."),
    Option("stream", "stream", _TEXT, "both",
           "One stream: an id in the bucket, a path, or the URL of a stream on another server. "
           "For a write: the stream of all rows if there is no column `stream`."),
    Option("streams", "streams", _NAMES, "read",
           "Several streams: `a,b,c`, or a JSON array."),
    Option("prefix", "prefix", _TEXT, "read",
           "Only streams of the bucket whose ids begin with this."),
    Option("pattern", "pattern", _TEXT, "read",
           "Only streams of the bucket whose ids match, as `orders-*`: `*`, `?`, `[a-z]`."),
    Option("startingOffsets", "starting", _OFFSETS, "read",
           "`earliest`, `latest`, or JSON: `{\"stream\": \"offset\"}`; other streams start at the "
           "earliest. A streaming query uses it at its first start only; later streams are "
           "read from their beginning."),
    Option("startingTimestamp", "starting_ms", _TIME, "read",
           "Start at the first message committed at or after this time."),
    Option("endingOffsets", "ending", _OFFSETS, "read",
           "`latest`, or JSON; other streams end at their tails. Batch only."),
    Option("endingTimestamp", "ending_ms", _TIME, "read",
           "End before the first message committed at or after this time. Batch only."),
    Option("maxMessagesPerTrigger", "max_messages", _COUNT, "read",
           "The largest number of messages of a micro-batch, shared among streams by their "
           "backlog."),
    Option("maxBytesPerTrigger", "max_bytes", _COUNT, "read",
           "The approximate largest size of a micro-batch; at least one message is read."),
    Option("minPartitions", "min_partitions", _COUNT, "read",
           "The smallest number of partitions, if there are as many messages."),
    Option("partitionBytes", "partition_bytes", _COUNT, "read",
           "The approximate largest size of a partition: larger streams are split, smaller "
           "ones grouped."),
    Option("failOnDataLoss", "fail_on_data_loss", _FLAG, "read",
           "Whether a missing stream, or missing messages, end the query; otherwise it continues "
           "with the remaining data."),
    Option("bootstrap", "bootstrap", _FLAG, "read",
           "Read the snapshot of a stream before its messages, as a row with `is_snapshot` true."),
    Option("value", "value", _VALUE_TYPE, "read",
           "The type of the column `value`; as text, a value that is not UTF-8 is an error."),
    Option("createStreams", "create_streams", _FLAG, "write",
           "Create streams that do not exist."),
    Option("createBuckets", "create_buckets", _FLAG, "write",
           "Create buckets that do not exist; needs `createStreams`."),
    Option("contentType", "content_type", _TEXT, "write",
           "The content type of rows without a column `content_type`."),
    Option("ttl", "ttl_s", _COUNT, "write",
           "The time to live of streams that the sink creates, in seconds."),
    Option("sinkId", "sink_id", _TEXT, "write",
           "The id of the writer: rows written under one sink id and batch id are stored once. "
           "The default for a streaming query is the query's id."),
    Option("batchId", "batch_id", _NUMBER, "write",
           "The number of a batch write with a `sinkId`: a rerun with the same number completes "
           "the write, the next write has a higher one."),
    Option("orderBy", "order_by", _TEXT, "write",
           "Comma-separated columns that order the rows within a stream."),
    Option("stableInput", "stable_input", _FLAG, "write",
           "States that rows come in the same order at every attempt, so that they can be sent "
           "in several requests as they come."),
    Option("maxRequestBytes", "max_request_bytes", _COUNT, "write",
           "The size of the largest request. Do not change it between attempts at one batch."),
    Option("bufferBytes", "buffer_bytes", _COUNT, "write",
           "The part of a partition that is sorted in memory; the rest goes to temporary files."),
)  # fmt: skip

# Options that Spark passes to every source.
_SPARK_OPTIONS: Final = frozenset(
    ("path", "checkpointlocation", "queryname", "outputmode", "__cdc")
)


def _parse(kind: type[T], given: Mapping[str, str], use: str) -> T:
    lower = {name.lower(): value for name, value in given.items()}
    found: dict[str, Any] = {}
    if lower.get("path"):
        raise OptionInvalid("path", "is not known: use bucket or stream")
    for option in OPTIONS:
        value = lower.pop(option.name.lower(), None)
        if value is None:
            continue
        if option.use not in (use, "both"):
            raise OptionInvalid(option.name, f"has no meaning for a {use}")
        found[option.field] = option.kind.parse(option.name, str(value))
    for name in lower:
        if name not in _SPARK_OPTIONS:
            known = ", ".join(option.name for option in OPTIONS if option.use in (use, "both"))
            raise OptionInvalid(name, f"is not known; known for a {use}: {known}")
    if "url" not in found:
        raise OptionInvalid("url", "is required, as http://127.0.0.1:4437")
    return kind(**found)


def data_source_options(connection: ConnectionOptions, **more: object) -> dict[str, str]:
    """The options of `format("tailrace")` for a connection, without those that are not set."""
    options = {
        "url": connection.url,
        "token": connection.token,
        "headers": json.dumps(dict(connection.headers)) if connection.headers else None,
        "timeout": connection.timeout_s,
        **more,
    }
    return {name: str(value) for name, value in options.items() if value not in (None, "")}


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """
    Parse and check the options of a read.

    Raises:
        OptionInvalid: An option is unknown, has an invalid value, or contradicts another.
    """
    options = _parse(ReadOptions, given, "read")
    if options.stream is not None and options.streams:
        raise OptionInvalid("streams", "and stream exclude each other")
    if not options.names and options.bucket is None:
        raise OptionInvalid("stream", "or streams or bucket is required")
    if (options.prefix or options.pattern) and (options.names or options.bucket is None):
        name = "prefix" if options.prefix else "pattern"
        raise OptionInvalid(name, "needs a bucket, and no stream or streams")
    if options.starting_ms is not None and options.starting != EARLIEST:
        raise OptionInvalid("startingTimestamp", "and startingOffsets exclude each other")
    if options.ending_ms is not None and options.ending != LATEST:
        raise OptionInvalid("endingTimestamp", "and endingOffsets exclude each other")
    if options.ending == EARLIEST:
        raise OptionInvalid("endingOffsets", "must be latest or JSON")
    return options


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """
    Parse and check the options of a write.

    Raises:
        OptionInvalid: An option is unknown, has an invalid value, or contradicts another.
    """
    options = _parse(WriteOptions, given, "write")
    if options.batch_id is not None and options.sink_id is None:
        raise OptionInvalid("batchId", "needs a sinkId")
    if options.create_buckets and not options.create_streams:
        raise OptionInvalid("createBuckets", "needs createStreams=true")
    return options
