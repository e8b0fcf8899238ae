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
    "Head",
    "Item",
    "Listed",
    "Part",
    "ProducerClaim",
    "Snapshot",
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
