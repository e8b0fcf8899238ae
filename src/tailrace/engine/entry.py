"""Streams and buckets as they are kept in memory: one entry per name."""

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tailrace.protocol.bucket import BucketState
from tailrace.protocol.state import StreamState

if TYPE_CHECKING:
    from tailrace.engine.commit import CommitBatch, StreamChange
    from tailrace.engine.subscriptions.entry import SubscriptionEntry

__all__ = ["BucketEntry", "Entry", "StreamEntry", "StreamListener"]

S = TypeVar("S")


class Entry(Generic[S]):
    """
    One name, and the state of what it names; None if that does not exist.

    The next command is decided upon `state`, which runs ahead of the disk. Readers see `durable`.
    Both are the same once `pending`, the last batch that changes this entry, is committed.
    """

    __slots__ = ("__weakref__", "durable", "key", "pending", "state")

    def __init__(self, key: bytes, state: S | None) -> None:
        self.key = key
        self.state = state
        self.durable = state
        self.pending: CommitBatch | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r})"


class BucketEntry(Entry[BucketState]):
    __slots__ = ()


class StreamListener(Protocol):
    """Receives the commits of one stream, on the event loop, after their states are published."""

    def committed(self, change: "StreamChange") -> None: ...


class StreamEntry(Entry[StreamState]):
    __slots__ = (
        "bucket", "dirty_bytes", "dirty_records", "listener", "touched_at", "watchers",
        "watchers_version",
    )  # fmt: skip

    def __init__(self, key: bytes, state: StreamState | None) -> None:
        # Not by `super().__init__`: this runs for every create.
        self.key = key
        self.state = state
        self.durable = state
        self.pending = None
        # Set by the first record; always None on the base surface, which has no buckets.
        self.bucket: BucketEntry | None = None
        # Since the last checkpoint: what loading would have to replay.
        self.dirty_records = 0
        self.dirty_bytes = 0
        # The last read. A sliding TTL counts from here; it is recorded about once a second.
        self.touched_at = 0
        # Set while the server has readers that wait for this stream.
        self.listener: StreamListener | None = None
        # The subscriptions that watch it, as of this version of them. 0 has none.
        self.watchers: tuple[SubscriptionEntry, ...] = ()
        self.watchers_version = 0

    @property
    def readable(self) -> StreamState | None:
        """The durable state; None as well if the stream is kept only for its forks."""
        state = self.durable
        return None if state is None or state.deleted else state
