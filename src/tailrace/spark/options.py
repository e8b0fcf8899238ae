"""
The options of `format("tailrace")`: one table for parsing and for `docs/spark.md`.

Rule 1: a name that is not in the table is an error. A misspelt `startingOffset` that is silently
ignored would read the wrong messages.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

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
class Option:
    """One option: its name, the field it is parsed into, and its documentation."""

    name: str
    field: str
    parse: Callable[[str], Any]
    use: str
    """read, write or both."""
    help: str


def _text(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return value


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.lower() == "true"


def _count(value: str) -> int:
    if not value.isascii() or not value.isdecimal() or int(value) < 1:
        raise ValueError("must be an integer, 1 or more")
    return int(value)


def _number(value: str) -> int:
    if not value.isascii() or not value.isdecimal():
        raise ValueError("must be an integer, 0 or more")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 86_400:
        raise ValueError("must be a number of seconds")
    return seconds


def _moment(value: str) -> int:
    """Milliseconds since 1970, or an ISO 8601 time; UTC if it has no zone."""
    if value.isascii() and value.isdecimal():
        return int(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            "must be a time, as 2026-01-31T12:00:00Z, or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _object(value: str) -> dict[str, str]:
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(item, str) for item in found.values()):
        raise ValueError("must be a JSON object of strings")
    return found


def _list(value: str) -> tuple[str, ...]:
    """Comma-separated names, or a JSON array of names."""
    found: Any = value.split(",")
    if value.lstrip().startswith("["):
        try:
            found = json.loads(value)
        except ValueError:
            found = None
    else:
        found = [name.strip() for name in found]
    if (
        not isinstance(found, list)
        or not found
        or not all(isinstance(name, str) and name for name in found)
    ):
        raise ValueError("must be comma-separated names, or a JSON array of names")
    return tuple(dict.fromkeys(found))


def _offsets(end: str) -> Callable[[str], str | dict[str, str]]:
    def parse(value: str) -> str | dict[str, str]:
        if value in (EARLIEST, LATEST):
            return value
        try:
            return _object(value)
        except ValueError:
            raise ValueError(
                'must be earliest, latest, or a JSON object of offsets, as {"my-stream": "-1"}; '
                f"streams without an offset {end}"
            ) from None

    return parse


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return parse


OPTIONS: Final = (
    Option("url", "url", _text, "both", "The server, as `http://127.0.0.1:4437`. Required."),
    Option("token", "token", _text, "both", "Sent as `Authorization: Bearer …`."),
    Option("headers", "headers", _object, "both", "More headers, as a JSON object."),
    Option("timeout", "timeout_s", _seconds, "both",
           "A request fails after this many seconds without data."),
    Option("bucket", "bucket", _text, "both",
           "The bucket of the streams. Without it, streams are paths under `/v1/stream/`."),
    Option("stream", "stream", _text, "both",
           "One stream: an id in the bucket, a path, or the URL of a stream on another server. "
           "For a write: the stream of all rows if there is no column `stream`."),
    Option("streams", "streams", _list, "read",
           "Several streams: `a,b,c`, or a JSON array."),
    Option("prefix", "prefix", _text, "read",
           "Only streams of the bucket whose ids begin with this."),
    Option("pattern", "pattern", _text, "read",
           "Only streams of the bucket whose ids match, as `orders-*`: `*`, `?`, `[a-z]`."),
    Option("startingOffsets", "starting", _offsets("start at the earliest"), "read",
           "`earliest`, `latest`, or JSON: `{\"stream\": \"offset\"}`; other streams start at the "
           "earliest. A streaming query uses it at its first start only; later streams are "
           "read from their beginning."),
    Option("startingTimestamp", "starting_ms", _moment, "read",
           "Start at the first message committed at or after this time."),
    Option("endingOffsets", "ending", _offsets("end at their tails"), "read",
           "`latest`, or JSON; other streams end at their tails. Batch only."),
    Option("endingTimestamp", "ending_ms", _moment, "read",
           "End before the first message committed at or after this time. Batch only."),
    Option("maxMessagesPerTrigger", "max_messages", _count, "read",
           "The largest number of messages of a micro-batch, shared among streams by their "
           "backlog."),
    Option("maxBytesPerTrigger", "max_bytes", _count, "read",
           "The approximate largest size of a micro-batch; at least one message is read."),
    Option("minPartitions", "min_partitions", _count, "read",
           "The smallest number of partitions, if there are as many messages."),
    Option("partitionBytes", "partition_bytes", _count, "read",
           "The approximate largest size of a partition: larger streams are split, smaller "
           "ones grouped."),
    Option("failOnDataLoss", "fail_on_data_loss", _flag, "read",
           "Whether a missing stream, or missing messages, end the query; otherwise it continues "
           "with the remaining data."),
    Option("bootstrap", "bootstrap", _flag, "read",
           "Read the snapshot of a stream before its messages, as a row with `is_snapshot` true."),
    Option("value", "value", _choice("binary", "text"), "read",
           "The type of the column `value`; as text, a value that is not UTF-8 is an error."),
    Option("createStreams", "create_streams", _flag, "write",
           "Create streams that do not exist."),
    Option("createBuckets", "create_buckets", _flag, "write",
           "Create buckets that do not exist; needs `createStreams`."),
    Option("contentType", "content_type", _text, "write",
           "The content type of rows without a column `content_type`."),
    Option("ttl", "ttl_s", _count, "write",
           "The time to live of streams that the sink creates, in seconds."),
    Option("sinkId", "sink_id", _text, "write",
           "The id of the writer: rows written under one sink id and batch id are stored once. "
           "The default for a streaming query is the query's id."),
    Option("batchId", "batch_id", _number, "write",
           "The number of a batch write with a `sinkId`: a rerun with the same number completes "
           "the write, the next write has a higher one."),
    Option("orderBy", "order_by", _text, "write",
           "Comma-separated columns that order the rows within a stream."),
    Option("stableInput", "stable_input", _flag, "write",
           "States that rows come in the same order at every attempt, so that they can be sent "
           "in several requests as they come."),
    Option("maxRequestBytes", "max_request_bytes", _count, "write",
           "The size of the largest request. Do not change it between attempts at one batch."),
    Option("bufferBytes", "buffer_bytes", _count, "write",
           "The part of a partition that is sorted in memory; the rest goes to temporary files."),
)  # fmt: skip

# Options that Spark passes to every source.
_OF_SPARK: Final = frozenset(("path", "checkpointlocation", "queryname", "outputmode", "__cdc"))


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
        try:
            found[option.field] = option.parse(str(value))
        except ValueError as error:
            raise OptionInvalid(option.name, f"{error}, not {str(value)[:80]!r}") from None
    for name in lower:
        if name not in _OF_SPARK:
            known = ", ".join(option.name for option in OPTIONS if option.use in (use, "both"))
            raise OptionInvalid(name, f"is not known; known for a {use}: {known}")
    if "url" not in found:
        raise OptionInvalid("url", "is required, as http://127.0.0.1:4437")
    assert found.keys() <= {each.name for each in fields(kind)}  # type: ignore[arg-type]
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
