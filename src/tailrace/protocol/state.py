"""The state of a stream, the records that it is a fold of, and the commands."""

from typing import TypeAlias

from msgspec import Struct

from tailrace.protocol.errors import Refusal
from tailrace.protocol.fork import ForkOrigin
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import NO_PRODUCERS, ProducerHeaders, Producers

__all__ = [
    "Append",
    "AppendRecord",
    "Command",
    "Create",
    "CreateRecord",
    "Delete",
    "DeleteRecord",
    "Expire",
    "ForkPoint",
    "ForkRequest",
    "Publish",
    "PublishRecord",
    "Record",
    "ReferenceRecord",
    "SnapshotInfo",
    "SoftDeleteRecord",
    "StreamState",
    "Touch",
    "TouchRecord",
]


class SnapshotInfo(Struct, frozen=True, gc=False):
    """
    A snapshot of a stream's content from its beginning to before `offset` (X§2).

    Its bytes are in the store, under `id`.
    """

    offset: Offset
    id: int
    size: int
    content_type: str
    digest: bytes
    """SHA-256 of its bytes, which tells whether a second publication is the same."""
    inline: bool
    """Small enough to be in the record that publishes it."""
    time: int = 0
    """When it was published."""


class StreamState(Struct, frozen=True, kw_only=True, gc=False):
    """A stream after some record. Immutable: `apply` makes the next one."""

    id: int
    """The internal id: a stream created again at the same URL has another one (§4)."""
    content_type: str
    json: bool
    """JSON mode: a message is an element of an array, and not an append."""
    created_at: int
    touched_at: int
    """When it was last written or read: a sliding TTL counts from here. Milliseconds."""
    written_at: int
    ttl_s: int | None = None
    expires_at: int | None = None
    tail: Offset = START
    earliest: Offset = START
    """The earliest retained offset."""
    closed: bool = False
    closed_by: ProducerHeaders | None = None
    stream_seq: str | None = None
    producers: Producers = NO_PRODUCERS
    snapshot: SnapshotInfo | None = None
    """The latest one, the only one that is visible."""
    fork: ForkOrigin | None = None
    """What it was forked from, if it was."""
    forks: int = 0
    """The number of streams that were forked from this one and still exist."""
    deleted: bool = False
    """Soft-deleted: it exists for its forks only."""
    held: int = 0
    """Bytes before the earliest retained offset that are kept for forks."""

    @property
    def begins(self) -> Offset:
        """Where its own records begin: what is before is inherited."""
        return START if self.fork is None else self.fork.point

    @property
    def own_snapshot(self) -> SnapshotInfo | None:
        """The snapshot, unless it is the inherited one."""
        snapshot = self.snapshot
        if snapshot is None or self.fork is None or snapshot.id != self.fork.snapshot_id:
            return snapshot
        return None

    def own_bytes(self, until: Offset) -> int:
        """The retained bytes of its own records before an offset."""
        return max(0, until.byte - max(self.earliest.byte, self.begins.byte))

    def superseded(self, offset: Offset) -> int:
        """The bytes of its own that it no longer retains after a snapshot at an offset."""
        snapshot = self.own_snapshot
        return self.own_bytes(offset) + (0 if snapshot is None else snapshot.size)

    def deadline(self, sliding: bool, read_at: int = 0) -> int | None:
        """The time at which the stream expires; `read_at` is a read that is not recorded yet."""
        if self.ttl_s is None:
            return self.expires_at
        start = max(self.touched_at, read_at) if sliding else self.created_at
        return start + self.ttl_s * 1000

    def expired(self, now: int, sliding: bool, read_at: int = 0) -> bool:
        deadline = None if self.deleted else self.deadline(sliding, read_at)
        return deadline is not None and now >= deadline


class AppendRecord(Struct, frozen=True, gc=False):
    """
    Messages were appended, the stream was closed, or both in one step.

    `payload` is the stored form; `lengths` has the stored length of each message, and is empty
    where the payload is one message.
    """

    time: int
    payload: bytes
    lengths: tuple[int, ...] = ()
    producer: ProducerHeaders | None = None
    stream_seq: str | None = None
    closes: bool = False

    @property
    def count(self) -> int:
        return len(self.lengths) or bool(self.payload)


class CreateRecord(Struct, frozen=True, kw_only=True, gc=False):
    """The stream was created, perhaps with content, perhaps closed at once."""

    time: int
    id: int
    content_type: str
    ttl_s: int | None = None
    expires_at: int | None = None
    content: AppendRecord | None = None
    fork: ForkOrigin | None = None
    earliest: Offset = START
    """Of a fork: inherited, like the snapshot there."""
    snapshot: SnapshotInfo | None = None


class DeleteRecord(Struct, frozen=True, gc=False):
    """The stream was deleted, or has expired."""

    time: int


class SoftDeleteRecord(Struct, frozen=True, gc=False):
    """The stream was deleted, or has expired, and is kept for its forks."""

    time: int


class ReferenceRecord(Struct, frozen=True, gc=False):
    """A fork of the stream was created (1), or a fork was removed (-1)."""

    change: int


class TouchRecord(Struct, frozen=True, gc=False):
    """A read restarted a sliding TTL."""

    time: int


class PublishRecord(Struct, frozen=True, gc=False):
    """A snapshot became the visible one, and its offset the earliest retained one."""

    snapshot: SnapshotInfo
    content: bytes | None
    """Its bytes, if it is inline; others are stored before this record is made."""


Record: TypeAlias = (
    AppendRecord
    | CreateRecord
    | DeleteRecord
    | PublishRecord
    | ReferenceRecord
    | SoftDeleteRecord
    | TouchRecord
)


class ForkPoint(Struct, frozen=True, gc=False):
    """What the records of a source have at a fork offset and sub-offset."""

    offset: Offset
    """The boundary up to which the fork inherits."""
    piece: bytes = b""
    """The beginning of the message after it, where the sub-offset is inside of a message."""


class ForkRequest(Struct, frozen=True, gc=False):
    """
    The fork headers of a PUT, and what the engine found out for `decide`.

    `point` is None where no record has to be read: the fork offset is the tail of the source, or
    is refused by the state of the source alone.
    """

    key: bytes
    """The name of the source."""
    offset: Offset | None = None
    """None: the tail of the source."""
    sub_offset: int = 0
    source: StreamState | None = None
    point: ForkPoint | Refusal | None = None


class Create(Struct, frozen=True, kw_only=True, gc=False):
    """PUT. `id` is the internal id of the stream, if this request creates it."""

    id: int
    content_type: str | None
    """None: that of the source; only a fork may omit it."""
    ttl_s: int | None = None
    expires_at: int | None = None
    closed: bool = False
    body: bytes = b""
    fork: ForkRequest | None = None


class Append(Struct, frozen=True, gc=False):
    """POST: an append, a close, or both."""

    body: bytes
    content_type: str | None = None
    closes: bool = False
    producer: ProducerHeaders | None = None
    stream_seq: str | None = None


class Delete(Struct, frozen=True, gc=False):
    """DELETE."""


class Expire(Struct, frozen=True, gc=False):
    """Delete the stream if it has expired."""

    sliding: bool
    read_at: int = 0
    """The last read, which may not be recorded yet."""


class Touch(Struct, frozen=True, gc=False):
    """Record a read, where the TTL is sliding."""


class Publish(Struct, frozen=True, gc=False):
    """PUT of a snapshot, whose offset is known to be a message boundary of this stream."""

    stream_id: int
    snapshot: SnapshotInfo
    content: bytes | None


Command: TypeAlias = Create | Append | Delete | Expire | Publish | Touch
