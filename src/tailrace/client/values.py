"""The values that operations take and return."""

from dataclasses import dataclass
from typing import Any

import msgspec

__all__ = [
    "Appended",
    "Bootstrap",
    "BucketInfo",
    "Chunk",
    "Created",
    "Found",
    "Head",
    "Item",
    "Listed",
    "Part",
    "Place",
    "ProducerClaim",
    "Snapshot",
    "StreamName",
    "Survey",
    "TextChunk",
]


@dataclass(frozen=True, slots=True)
class ProducerClaim:
    """
    The identity of an append (§5.2.1): a server stores each once, however often it is sent.

    `seq` starts at 0 in each epoch and increases by one with each request.
    """

    producer_id: str
    epoch: int
    seq: int

    def headers(self) -> dict[str, str]:
        return {
            "producer-id": self.producer_id,
            "producer-epoch": str(self.epoch),
            "producer-seq": str(self.seq),
        }


@dataclass(frozen=True, slots=True)
class Created:
    """The stream exists; `new` if this request created it."""

    new: bool
    content_type: str
    next_offset: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Appended:
    """Stored durably; `duplicate` if an earlier attempt of the same producer request stored it."""

    next_offset: str | None
    """The stream's tail after it; other servers may omit it for a duplicate."""
    closed: bool
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The metadata of a stream."""

    content_type: str
    next_offset: str
    closed: bool
    ttl_s: int | None = None
    expires_at: str | None = None
    snapshot_offset: str | None = None
    earliest_offset: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some of a stream's bytes; reading from `next_offset` continues without gap or repeat."""

    data: bytes
    next_offset: str
    up_to_date: bool
    """There was no more content at that moment."""
    closed: bool
    """The stream is closed: there will be no more content."""


# A msgspec struct, whose `next_offset` is formatted on demand: a reader makes millions of these.
class Item(msgspec.Struct, frozen=True):
    """One message of a JSON stream; reading from `next_offset` starts with the next one."""

    value: Any
    start: str
    """An offset before it, or at its end."""
    count: int = 0
    """The number of messages from `start` to its end; 0 if it ends at `start`."""

    @property
    def next_offset(self) -> str:
        """The offset to resume after it."""
        return f"{self.start},{self.count}" if self.count else self.start


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Some of a stream's text."""

    text: str
    next_offset: str


@dataclass(frozen=True, slots=True)
class BucketInfo:
    """The metadata of a bucket."""

    bucket_id: str
    streams: int
    bytes: int | None = None
    """The size of its streams and their snapshots; None if the server does not report it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A stream in the listing of its bucket."""

    stream_id: str
    closed: bool
    content_type: str
    size: int
    """In bytes, as stored."""
    next_offset: str | None
    """Its tail; other servers may omit it."""
    created_at_ms: int
    last_write_at_ms: int
    earliest_offset: str | None = None
    """The earliest that is retained; other servers omit this and the following fields."""
    snapshot_offset: str | None = None
    snapshot_at_ms: int | None = None
    snapshot_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """The streams of a bucket, or those that changed; pass `position` to get the next changes."""

    streams: list[Listed]
    deleted: list[str]
    """The ids of deleted streams, if changes were requested."""
    position: str | None
    """None if the server does not report it: then survey the whole bucket each time."""


@dataclass(frozen=True, slots=True, order=True)
class StreamName:
    """The name of a stream: in a bucket, or by its path below `/v1/stream`."""

    bucket: str | None
    stream: str

    def __str__(self) -> str:
        return self.stream if self.bucket is None else f"{self.bucket}/{self.stream}"

    def fields(self) -> dict[str, str]:
        """Its fields in the requests for many streams."""
        if self.bucket is None:
            return {"path": self.stream}
        return {"bucket": self.bucket, "stream": self.stream}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a stream, to find its offset: given by one of the three fields below."""

    name: StreamName
    message: int | None = None
    """The boundary before the message of this number."""
    byte: int | None = None
    """The last boundary at or before this byte."""
    time_ms: int | None = None
    """The boundary before the first message committed at or after this time."""

    def fields(self) -> dict[str, Any]:
        fields = {"message": self.message, "byte": self.byte, "time": self.time_ms}
        given = {name: value for name, value in fields.items() if value is not None}
        if len(given) != 1:
            raise ValueError("a place needs exactly one of message, byte and time_ms")
        return {**self.name.fields(), **given}


@dataclass(frozen=True, slots=True)
class Found:
    """The offset of a place; `created_at_ms` tells a stream from one created again later."""

    offset: str
    created_at_ms: int
    closed: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state that all messages before `offset` produce; continue to read there."""

    data: bytes
    content_type: str
    offset: str
    up_to_date: bool
    """There were no messages after it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bootstrap: first the snapshot, then each message."""

    data: bytes
    content_type: str
    is_snapshot: bool
    next_offset: str
    """The offset to continue at after the last part."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The state of a stream for a new reader, which then tails from `next_offset`."""

    snapshot: Snapshot | None
    messages: list[bytes]
    content_type: str | None
    """The content type of the messages; None without messages."""
    next_offset: str
