"""
The contract of a store. One suite, `tests/contract`, runs over every implementation.

A store keeps, for each stream, a checkpoint of its state and the records after it; the names of
streams, in order; buckets; the bytes of snapshots; an index of when streams expire; and garbage
until it is reclaimed; what is kept for forks. It decides nothing.

The duties of the engine: all calls come from one thread, except `sync`, `compact`, `unlink`,
`read_snapshot`, `log_bytes`, the methods of a `Spool`, and `prepare`, `gather` and `discard` of a
`StoreCopy`, which may run in other threads at any time; at most one transaction is being written or
synced at a time.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.protocol.bucket import BucketState
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import AppendRecord, SnapshotInfo, StreamState
from tailrace.protocol.subscription import Link, SubscriptionState

__all__ = [
    "SNAPSHOT_CHUNK_BYTES",
    "CopiedFile",
    "Due",
    "Garbage",
    "Spool",
    "Store",
    "StoreCopy",
    "Transaction",
    "new_store_id",
    "snapshot_garbage",
]

SNAPSHOT_CHUNK_BYTES: Final = 1 << 20
"""A snapshot that is not inline is written and read in chunks of this size; the last is shorter."""


class Due(NamedTuple):
    """An entry of the expiry index: check this stream at this time."""

    deadline: int
    id: int
    key: bytes


class Garbage(NamedTuple):
    """Data that is no longer needed: a stream, the beginning of one, or a snapshot."""

    id: int
    bytes: int
    until: int | None = None
    """Of a stream that still exists: the byte offset before which nothing is retained."""
    file: bool = False
    """A snapshot in its own file, which `Store.unlink` removes first."""


def snapshot_garbage(snapshot: SnapshotInfo) -> Garbage:
    """The entry of a snapshot that is no longer needed."""
    return Garbage(snapshot.id, snapshot.size, file=not snapshot.inline)


class Spool(ABC):
    """A large snapshot that is being written, beside the log. Invisible until it is published."""

    @abstractmethod
    def write(self, chunk: bytes) -> None:
        """Add `SNAPSHOT_CHUNK_BYTES`, or less at the end. Raises OSError if the disk fails."""

    @abstractmethod
    def finish(self) -> None:
        """Make it durable. Only then may a record refer to it. Raises like `write`."""

    @abstractmethod
    def discard(self) -> None:
        """Remove it: the upload was cancelled, or refused."""


class Transaction(ABC):
    """Changes that become visible and durable together, or not at all."""

    @abstractmethod
    def create(self, key: bytes, state: StreamState) -> None:
        """Store the name of a stream and its first checkpoint."""

    @abstractmethod
    def append(self, stream_id: int, at: Offset, record: AppendRecord) -> None:
        """Store a record at the tail before it: one put."""

    @abstractmethod
    def checkpoint(self, key: bytes, state: StreamState) -> None:
        """Store a state, so that loading it replays nothing from before."""

    def delete(self, key: bytes, state: StreamState) -> None:
        """Delete the name and the state; the records and the snapshot become garbage."""
        self.remove(key, state.id)
        self.discard(Garbage(state.id, state.own_bytes(state.tail)))
        if (snapshot := state.own_snapshot) is not None:
            self.discard(snapshot_garbage(snapshot))

    @abstractmethod
    def remove(self, key: bytes, stream_id: int) -> None:
        """Delete the name and the state of a stream."""

    @abstractmethod
    def schedule(self, due: Due) -> None:
        """Add an entry to the expiry index."""

    @abstractmethod
    def unschedule(self, due: Due) -> None:
        """Remove an entry from the expiry index."""

    @abstractmethod
    def reserve_ids(self, until: int) -> None:
        """After a restart, `Store.next_id` is at least this."""

    def publish(
        self,
        key: bytes,
        before: StreamState,
        after: StreamState,
        content: bytes | None,
        superseded: Callable[[Garbage], None] | None = None,
    ) -> None:
        """
        Store the state with a snapshot, and the bytes of the snapshot if it is inline.

        The previous snapshot, and the records that this one covers, go to `superseded`; by default
        they become garbage. What the stream inherits is not its own, and stays.
        """
        assert after.snapshot is not None
        self.put_snapshot(after.snapshot.id, content)
        self.checkpoint(key, after)
        superseded = self.discard if superseded is None else superseded
        if (snapshot := before.own_snapshot) is not None:
            superseded(snapshot_garbage(snapshot))
        if covered := before.own_bytes(after.earliest):
            superseded(Garbage(after.id, covered, until=after.earliest.byte))

    @abstractmethod
    def put_snapshot(self, snapshot_id: int, content: bytes | None) -> None:
        """Store the bytes of a snapshot, or, if None, that its file is in use."""

    @abstractmethod
    def discard(self, garbage: Garbage) -> None:
        """Add an entry to the garbage."""

    @abstractmethod
    def put_held(self, key: bytes, value: bytes | None) -> None:
        """Store an entry about what is kept for forks, or delete it; see `engine.forks`."""

    @abstractmethod
    def put_bucket(self, bucket: bytes, state: BucketState | None) -> None:
        """Store a bucket, or delete it."""

    @abstractmethod
    def put_subscription(self, key: bytes, state: SubscriptionState | None) -> None:
        """Store a subscription, or delete it."""

    @abstractmethod
    def put_link(self, subscription_id: int, path: bytes, link: Link | None) -> None:
        """Store the link of a subscription to a stream, or delete it."""

    @abstractmethod
    def drop_links(self, subscription_id: int) -> None:
        """Delete all links of a subscription."""

    @abstractmethod
    def put_secret(self, name: bytes, secret: bytes) -> None:
        """Store key material under a name."""

    @abstractmethod
    def reclaim(self, garbage: Garbage) -> None:
        """Delete garbage, and its entry."""


class CopiedFile(NamedTuple):
    """A file of a copy."""

    name: str
    """Its path relative to the data directory."""
    path: Path
    size: int


class StoreCopy(ABC):
    """
    A consistent copy of a store, made while it is in use. `discard` is called in any case.

        prepare   in a thread   makes `take` short
        take      on the loop   between two group commits: the copy has what is durable then
        gather    in a thread   returns the files of the copy
        discard   in a thread   when they were sent, or are no longer needed

    Each raises OSError if it fails; the disk may be full. Stored data never changes, it is only
    deleted. So the copy consists of hard links, and takes space only for what is deleted later.
    """

    storage_format: int
    """The storage format of its files."""

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def take(self) -> dict[str, int]:
        """Returns the counters of the store at that moment."""

    @abstractmethod
    def gather(self) -> list[CopiedFile]:
        """No file of a snapshot may be unlinked between `take` and the end of this."""

    @abstractmethod
    def discard(self) -> None: ...


def new_store_id() -> str:
    """An id that no other store has."""
    return secrets.token_urlsafe(6)


class Store(ABC):
    durable: bool
    """Whether `sync` does anything, and so needs a thread."""
    cut_bytes: int = 0
    """The bytes of a damaged log that were cut off to open it."""
    next_id: int
    """The first internal id that was never used."""
    store_id: str
    """
    Random for each new store and each restored backup. Internal ids and offsets are repeated there
    with other content; together with this they identify content.
    """

    @abstractmethod
    def begin(self) -> Transaction: ...

    @abstractmethod
    def write(self, transaction: Transaction) -> None:
        """Make a transaction visible to reads. A failure is final: write nothing more."""

    @abstractmethod
    def sync(self) -> None:
        """Make everything that was written durable. A failure is final, and never retried."""

    @abstractmethod
    def load(self, key: bytes) -> StreamState | None:
        """A stream's state: its checkpoint with the records after it applied."""

    @abstractmethod
    def scan(self, stream_id: int, start: int, end: int) -> Iterator[bytes]:
        """Stored records in a range of bytes, from the one that contains `start` on."""

    @abstractmethod
    def due(self, now: int, count_max: int) -> list[Due]:
        """Entries of the expiry index that are due, earliest first."""

    @abstractmethod
    def bucket(self, bucket: bytes) -> BucketState | None:
        """A bucket, if it exists."""

    @abstractmethod
    def bucket_names(self, prefix: bytes, after: bytes, count_max: int) -> list[bytes]:
        """Buckets that begin with `prefix` and come after another one, in order."""

    @abstractmethod
    def names(self, prefix: bytes, after: bytes, count_max: int) -> list[bytes]:
        """Keys of streams that begin with `prefix` and come after another key, in order."""

    @abstractmethod
    def held(self, first: bytes, end: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        """Entries of `Transaction.put_held` from one key to before another, in order."""

    @abstractmethod
    def subscriptions(self) -> Iterator[tuple[bytes, SubscriptionState]]:
        """All subscriptions and their keys, in order."""

    @abstractmethod
    def links(self) -> Iterator[tuple[int, bytes, Link]]:
        """All links: the internal id of the subscription, the path of the stream, the link."""

    @abstractmethod
    def secret(self, name: bytes) -> bytes | None:
        """The key material of a name, if it is stored."""

    @abstractmethod
    def spool(self, snapshot_id: int) -> Spool:
        """A writer for a large snapshot. It does not use the disk before its first `write`."""

    @abstractmethod
    def read_snapshot(self, snapshot: SnapshotInfo, index: int) -> bytes:
        """
        One chunk of a snapshot; an inline one is chunk 0. Call it in a thread if it is not inline.

        Raises StorageDamaged if it differs from what was stored.
        """

    @abstractmethod
    def garbage(
        self, count_max: int, allow: Callable[[Garbage], bool] = lambda _: True
    ) -> list[Garbage]:
        """Garbage that may be reclaimed."""

    @abstractmethod
    def unlink(self, garbage: Garbage) -> None:
        """Remove the file of a snapshot, if it exists. Slow; call it in a thread."""

    @abstractmethod
    def compact(self, first: tuple[int, int], last: tuple[int, int]) -> None:
        """
        Return the space of reclaimed data to the disk. Slow; call it in a thread.

        The range is from a record to before another, each an id and a byte offset.
        """

    def free_bytes(self) -> int | None:
        """Free space on the disk, without the reserve; None if there is no limit."""
        return None

    def sizes(self) -> dict[str, int]:
        """Stored bytes by kind, approximately."""
        return {}

    def log_bytes(self) -> int | None:
        """The size of the log, if there is one. Reads the directory: call it in a thread."""
        return None

    def cache_lookups(self) -> tuple[int, int] | None:
        """Hits and misses of the block cache."""
        return None

    def copy(self) -> StoreCopy | None:
        """A consistent copy, still to be taken; None if there are no files to copy."""
        return None

    @abstractmethod
    def interrupt(self) -> None:
        """Make a running `compact` return early."""

    @abstractmethod
    def close(self) -> None: ...
