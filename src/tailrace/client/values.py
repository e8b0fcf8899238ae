"""What operations return."""

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
    Whose append this is, and which one (§5.2.1): a server stores each once, however often it comes.

    `seq` begins at 0 in each epoch and grows by one with each request.
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
    """A stream is there: `new` if this request made it."""

    new: bool
    content_type: str
    next_offset: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Appended:
    """Stored, durably. `duplicate`: it had been stored before, by the same producer request."""

    next_offset: str | None
    """The stream's tail after it; other servers do not say it of a duplicate."""
    closed: bool
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """What a stream is."""

    content_type: str
    next_offset: str
    closed: bool
    ttl_s: int | None = None
    expires_at: str | None = None
    snapshot_offset: str | None = None
    earliest_offset: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some of a stream's bytes; reading on from `next_offset` misses and repeats nothing."""

    data: bytes
    next_offset: str
    up_to_date: bool
    """There was no more at that moment."""
    closed: bool
    """There will never be more."""


# Not a dataclass as the others, and its place is written out only when it is asked for: these are
# made by the million.
class Item(msgspec.Struct, frozen=True):
    """One message of a JSON stream; reading on from `next_offset` begins with the one after it."""

    value: Any
    start: str
    """An offset before it,"""
    count: int = 0
    """and how many messages after that offset it ends."""

    @property
    def next_offset(self) -> str:
        """Where to resume after it."""
        return f"{self.start},{self.count}" if self.count else self.start


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Some of a stream's text."""

    text: str
    next_offset: str


@dataclass(frozen=True, slots=True)
class BucketInfo:
    """What a bucket is."""

    bucket_id: str
    streams: int
    bytes: int | None = None
    """What its streams and their snapshots hold; None where a server does not say."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A stream in the listing of its bucket."""

    stream_id: str
    closed: bool
    content_type: str
    size: int
    """In bytes, as they are stored."""
    next_offset: str | None
    """Its tail; servers other than ours may not say."""
    created_at_ms: int
    last_write_at_ms: int
    earliest_offset: str | None = None
    """The earliest that is retained; servers other than ours do not say this and what follows."""
    snapshot_offset: str | None = None
    snapshot_at_ms: int | None = None
    snapshot_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """The streams of a bucket, or those that changed; ask with `position` for what changes next."""

    streams: list[Listed]
    deleted: list[str]
    """Ids of streams that are gone, of those that changed."""
    position: str | None
    """None where a server does not say: then the bucket is always surveyed whole."""


@dataclass(frozen=True, slots=True, order=True)
class StreamName:
    """A stream of a server: in a bucket, or by its path on the base surface."""

    bucket: str | None
    stream: str

    def __str__(self) -> str:
        return self.stream if self.bucket is None else f"{self.bucket}/{self.stream}"

    def fields(self) -> dict[str, str]:
        """As it stands in requests that name many."""
        if self.bucket is None:
            return {"path": self.stream}
        return {"bucket": self.bucket, "stream": self.stream}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a stream to find the offset of, by one of three things."""

    name: StreamName
    message: int | None = None
    """The boundary before the message of this number,"""
    byte: int | None = None
    """the last boundary at or before this byte,"""
    time_ms: int | None = None
    """or that before the first message committed at or after this moment."""

    def fields(self) -> dict[str, Any]:
        asked = {"message": self.message, "byte": self.byte, "time": self.time_ms}
        said = {name: value for name, value in asked.items() if value is not None}
        if len(said) != 1:
            raise ValueError("a place has one of message, byte and time_ms")
        return {**self.name.fields(), **said}


@dataclass(frozen=True, slots=True)
class Found:
    """Where a place is, and in which stream: one that is created anew is another one."""

    offset: str
    created_at_ms: int
    closed: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What all messages before `offset` add up to; read on from there."""

    data: bytes
    content_type: str
    offset: str
    up_to_date: bool
    """Nothing came after it yet."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bootstrap: first the snapshot, then each message."""

    data: bytes
    content_type: str
    is_snapshot: bool
    next_offset: str
    """Where to read on after the last part."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Everything that a new reader needs: then it tails from `next_offset`."""

    snapshot: Snapshot | None
    messages: list[bytes]
    content_type: str | None
    """Of the messages, if there are any."""
    next_offset: str
