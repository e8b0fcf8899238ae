"""
Every option of `format("tailrace")`: one table that parsing and `docs/spark.md` come from.

Rule 1: a name that is not in the table is an error. A misspelt `startingOffset` that is silently
ignored reads, or loses, the wrong messages.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from tailrace.exceptions import ExitCode, TailraceError

__all__ = [
    "EARLIEST",
    "LATEST",
    "OPTIONS",
    "Connection",
    "Option",
    "OptionInvalid",
    "ReadOptions",
    "WriteOptions",
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
class Connection:
    """How to reach a server."""

    url: str
    token: str | None = None
    headers: Mapping[str, str]
    timeout_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Connection):
    """What to read, from where to where, in how large steps."""

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
        """The streams that are named one by one; none where a bucket is looked through."""
        return (self.stream,) if self.stream is not None else self.streams


@dataclass(frozen=True, kw_only=True)
class WriteOptions(Connection):
    """Where to write, and how."""

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
    """One option: its name, what it is parsed into, and what it does."""

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
        raise ValueError("must be a whole number, 1 or more")
    return int(value)


def _number(value: str) -> int:
    if not value.isascii() or not value.isdecimal():
        raise ValueError("must be a whole number, 0 or more")
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
    """Milliseconds since 1970, or a date and time; without a zone it is UTC."""
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
        raise ValueError("must be a JSON object of texts")
    return found


def _list(value: str) -> tuple[str, ...]:
    """Names with commas between them; a JSON array where a name has a comma."""
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
        raise ValueError("must be names with commas between them, or a JSON array of names")
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
                f"streams that it does not name {end}"
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
           "Seconds that nothing may come before a request counts as lost."),
    Option("bucket", "bucket", _text, "both",
           "The bucket of the streams. Without it they are paths under `/v1/stream/`."),
    Option("stream", "stream", _text, "both",
           "One stream: an id in the bucket, a path, or the whole URL of a stream elsewhere. "
           "For a write: where rows go that have no column `stream`."),
    Option("streams", "streams", _list, "read",
           "Several streams: `a,b,c`, or a JSON array."),
    Option("prefix", "prefix", _text, "read", "Streams of the bucket whose ids begin so."),
    Option("pattern", "pattern", _text, "read",
           "Streams of the bucket whose ids match, as `orders-*`: `*`, `?`, `[a-z]`."),
    Option("startingOffsets", "starting", _offsets("start at the earliest"), "read",
           "`earliest`, `latest`, or JSON: `{\"stream\": \"offset\"}`; others start at the "
           "earliest. A streaming query obeys it at its first start only; streams that "
           "come later are read from their beginning."),
    Option("startingTimestamp", "starting_ms", _moment, "read",
           "Start at the first message committed at or after this time."),
    Option("endingOffsets", "ending", _offsets("end at their tails"), "read",
           "`latest`, or JSON; others end at their tails. Batch only."),
    Option("endingTimestamp", "ending_ms", _moment, "read",
           "End before the first message committed at or after this time. Batch only."),
    Option("maxMessagesPerTrigger", "max_messages", _count, "read",
           "A micro-batch has at most so many messages, shared out by how far streams are behind."),
    Option("maxBytesPerTrigger", "max_bytes", _count, "read",
           "A micro-batch has about so many bytes at most; at least one message."),
    Option("minPartitions", "min_partitions", _count, "read",
           "At least so many partitions, if there are as many messages."),
    Option("partitionBytes", "partition_bytes", _count, "read",
           "About the most that one partition reads: larger streams are split, smaller grouped."),
    Option("failOnDataLoss", "fail_on_data_loss", _flag, "read",
           "Whether a stream, or messages, that are gone end the query; else it reads on with "
           "what there is."),
    Option("bootstrap", "bootstrap", _flag, "read",
           "Where a stream starts with a snapshot, that comes first, as a row with "
           "`is_snapshot` true."),
    Option("value", "value", _choice("binary", "text"), "read",
           "Whether `value` is binary or text; what is not UTF-8 is an error as text."),
    Option("createStreams", "create_streams", _flag, "write",
           "Create streams that are not there."),
    Option("createBuckets", "create_buckets", _flag, "write",
           "Create buckets that are not there; with `createStreams`."),
    Option("contentType", "content_type", _text, "write",
           "Of the rows that have no column `content_type`."),
    Option("ttl", "ttl_s", _count, "write", "Seconds that created streams live."),
    Option("sinkId", "sink_id", _text, "write",
           "Names the writer: what it wrote once under a batch id it never writes again. Of a "
           "streaming query it is the query's own id, unless given."),
    Option("batchId", "batch_id", _number, "write",
           "Of a batch write with a `sinkId`: a rerun with the same number completes it, a later "
           "write has a higher one."),
    Option("orderBy", "order_by", _text, "write",
           "Columns, with commas between, by which rows are ordered within a stream."),
    Option("stableInput", "stable_input", _flag, "write",
           "Promises that rows come in the same order at every attempt, so that they can be sent "
           "in pieces as they come."),
    Option("maxRequestBytes", "max_request_bytes", _count, "write",
           "The largest request. Not to be changed between attempts at one batch."),
    Option("bufferBytes", "buffer_bytes", _count, "write",
           "So much of a partition is sorted in memory; more goes to temporary files."),
)  # fmt: skip

# What Spark itself passes on to every source.
_OF_SPARK: Final = frozenset(("path", "checkpointlocation", "queryname", "outputmode", "__cdc"))


def _parse(kind: type[T], given: Mapping[str, str], use: str) -> T:
    lower = {name.lower(): value for name, value in given.items()}
    found: dict[str, Any] = {}
    if lower.get("path"):
        raise OptionInvalid("path", "is not known: name what to read by bucket or stream")
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
    found.setdefault("headers", {})
    assert found.keys() <= {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**found)


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """
    Parse and check the options of a read.

    Raises:
        OptionInvalid: One is unknown, cannot have its value, or contradicts another.
    """
    options = _parse(ReadOptions, given, "read")
    if options.stream is not None and options.streams:
        raise OptionInvalid("streams", "and stream exclude each other")
    if not options.names and options.bucket is None:
        raise OptionInvalid("stream", "or streams or bucket must say what to read")
    if (options.prefix or options.pattern) and (options.names or options.bucket is None):
        raise OptionInvalid("prefix" if options.prefix else "pattern", "needs a bucket alone")
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
        OptionInvalid: One is unknown, cannot have its value, or contradicts another.
    """
    options = _parse(WriteOptions, given, "write")
    if options.batch_id is not None and options.sink_id is None:
        raise OptionInvalid("batchId", "needs a sinkId, which it counts for")
    if options.create_buckets and not options.create_streams:
        raise OptionInvalid("createBuckets", "needs createStreams=true")
    return options
