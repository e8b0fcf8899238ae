"""
The contract of a store. One suite, `tests/contract`, runs over every implementation.

A store keeps, for each stream, a checkpoint of its state and the records after it; the names of
streams, in order; buckets; the bytes of snapshots; an index of when streams expire; and garbage
until it is reclaimed. It decides nothing.

The duties of the engine: all calls come from one thread, except `sync`, `compact`, `unlink`,
`read_snapshot`, `log_bytes`, the methods of a `Spool`, and `prepare`, `gather` and `discard` of a
`StoreCopy`, which may run in other threads at any time; at most one transaction is being written or
synced at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tailrace.engine.store_copy import StoreCopy
from tailrace.protocol.bucket import BucketState
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import AppendRecord, SnapshotInfo, StreamState

__all__ = ["SNAPSHOT_CHUNK_BYTES", "Due", "Garbage", "Spool", "Store", "Transaction", "anything"]

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


def anything(_garbage: Garbage) -> bool:
    return True


class Spool(ABC):
    """A large snapshot that is being written, beside the log. Invisible until it is published."""

    @abstractmethod
    def write(self, chunk: bytes) -> None:
        """
        Add `SNAPSHOT_CHUNK_BYTES`, or less at the end.

        Raises:
            OSError: The disk is full, or fails.
        """

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

    @abstractmethod
    def delete(self, key: bytes, state: StreamState) -> None:
        """Delete the name and the state; the records and the snapshot become garbage."""

    @abstractmethod
    def schedule(self, due: Due) -> None:
        """Add an entry to the expiry index."""

    @abstractmethod
    def unschedule(self, due: Due) -> None:
        """Remove an entry from the expiry index."""

    @abstractmethod
    def reserve_ids(self, until: int) -> None:
        """After a restart, `Store.next_id` is at least this."""

    @abstractmethod
    def publish(
        self, key: bytes, before: StreamState, after: StreamState, content: bytes | None
    ) -> None:
        """
        Store the state with a snapshot, and the bytes of the snapshot if it is inline.

        The previous snapshot, and the records that this one covers, become garbage.
        """

    @abstractmethod
    def put_bucket(self, bucket: bytes, state: BucketState | None) -> None:
        """Store a bucket, or delete it."""

    @abstractmethod
    def reclaim(self, garbage: Garbage) -> None:
        """Delete garbage, and its entry."""


class Store(ABC):
    """Stores streams."""

    durable: bool
    """Whether `sync` does anything, and so needs a thread."""
    cut_bytes: int = 0
    """The bytes of a damaged log that were cut off to open it."""
    next_id: int
    """The first internal id that was never used."""

    @abstractmethod
    def begin(self) -> Transaction: ...

    @abstractmethod
    def write(self, transaction: Transaction) -> None:
        """
        Make a transaction visible to reads; after `sync` it is durable too.

        Raises:
            Exception: Any failure is final: the caller must write nothing more.
        """

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
    def spool(self, snapshot_id: int) -> Spool:
        """A writer for a large snapshot. It does not use the disk before its first `write`."""

    @abstractmethod
    def read_snapshot(self, snapshot: SnapshotInfo, index: int) -> bytes:
        """
        One chunk of a snapshot; an inline one is chunk 0. Call it in a thread if it is not inline.

        Raises:
            StorageDamaged: It differs from what was stored.
        """

    @abstractmethod
    def garbage(self, count_max: int, allow: Callable[[Garbage], bool] = anything) -> list[Garbage]:
        """Garbage that may be reclaimed."""

    @abstractmethod
    def unlink(self, garbage: Garbage) -> None:
        """
        Remove the file of a snapshot, if it exists. Slow; call it in a thread.

        Raises:
            OSError: It cannot be removed.
        """

    @abstractmethod
    def compact(self, first: tuple[int, int], last: tuple[int, int]) -> None:
        """
        Return the space of reclaimed data to the disk. Slow; call it in a thread.

        The range is from a record to before another, each an id and a byte offset.
        """

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Free space on the disk, without the reserve; None if there is no limit."""

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
