"""
The contract of a store. One suite, `tests/contract`, runs over every implementation.

A store keeps, for each stream, a checkpoint of its state and the records that came after it; a
name for each stream, in order; buckets; the bytes of snapshots; an index of when streams end; and
what is no longer needed until it is reclaimed. It judges nothing.

What the engine owes it: all calls come from one thread, except `sync`, `compact`, `unlink`,
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
    """An entry of the expiry index: look at this stream at this moment."""

    deadline: int
    id: int
    key: bytes


class Garbage(NamedTuple):
    """What still takes up room and is not needed: a stream, the beginning of one, a snapshot."""

    id: int
    bytes: int
    until: int | None = None
    """Of a stream that lives on: the byte offset before which nothing is retained."""
    file: bool = False
    """A snapshot that has a file of its own, which `Store.unlink` removes first."""


def anything(_garbage: Garbage) -> bool:
    return True


class Spool(ABC):
    """A large snapshot on its way to the disk, beside the log: nobody sees it until published."""

    @abstractmethod
    def write(self, chunk: bytes) -> None:
        """
        Add `SNAPSHOT_CHUNK_BYTES`, or what is left at the end.

        Raises:
            OSError: The disk is full, or fails.
        """

    @abstractmethod
    def finish(self) -> None:
        """Make it survive a crash. Only then may a record refer to it. Raises like `write`."""

    @abstractmethod
    def discard(self) -> None:
        """Remove it: the upload was given up, or refused."""


class Transaction(ABC):
    """Changes that become visible and durable together, or not at all."""

    @abstractmethod
    def create(self, key: bytes, state: StreamState) -> None:
        """Name a stream and store its first checkpoint."""

    @abstractmethod
    def append(self, stream_id: int, at: Offset, record: AppendRecord) -> None:
        """Store a record at the tail before it: one put."""

    @abstractmethod
    def checkpoint(self, key: bytes, state: StreamState) -> None:
        """Store a state, so that loading it need not replay what came before."""

    @abstractmethod
    def delete(self, key: bytes, state: StreamState) -> None:
        """Forget the name and the state; the records and the snapshot become garbage."""

    @abstractmethod
    def schedule(self, due: Due) -> None:
        """Have `Store.due` return this entry from its moment on."""

    @abstractmethod
    def unschedule(self, due: Due) -> None:
        """Take an entry out of the expiry index."""

    @abstractmethod
    def reserve_ids(self, until: int) -> None:
        """After a restart `Store.next_id` is at least this."""

    @abstractmethod
    def publish(
        self, key: bytes, before: StreamState, after: StreamState, content: bytes | None
    ) -> None:
        """
        Store the state that shows a snapshot, and its bytes if it is inline.

        The snapshot before it, and the records that it covers, become garbage.
        """

    @abstractmethod
    def put_bucket(self, bucket: bytes, state: BucketState | None) -> None:
        """Store a bucket, or forget it."""

    @abstractmethod
    def reclaim(self, garbage: Garbage) -> None:
        """Delete what is no longer needed, and the note that it is."""


class Store(ABC):
    """Where streams lie."""

    durable: bool
    """Whether `sync` does anything, and so needs a thread of its own."""
    cut_bytes: int = 0
    """How much of a damaged log was cut off to open it at all."""
    next_id: int
    """The first internal id that no stream, living or deleted, ever had."""

    @abstractmethod
    def begin(self) -> Transaction: ...

    @abstractmethod
    def write(self, transaction: Transaction) -> None:
        """
        Make a transaction visible to reads; after `sync` it also survives a crash.

        Raises:
            Exception: Any failure is final: the caller must write nothing more.
        """

    @abstractmethod
    def sync(self) -> None:
        """Make all that was written survive a crash. A failure is final, and never tried again."""

    @abstractmethod
    def load(self, key: bytes) -> StreamState | None:
        """A stream's state: its checkpoint and the records after it, folded."""

    @abstractmethod
    def scan(self, stream_id: int, start: int, end: int) -> Iterator[bytes]:
        """Stored records that lie in these bytes, from the one that contains `start` on."""

    @abstractmethod
    def due(self, now: int, count_max: int) -> list[Due]:
        """Entries of the expiry index whose moment has come, earliest first."""

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
        """A place for the bytes of a large snapshot. Touches no disk before its first `write`."""

    @abstractmethod
    def read_snapshot(self, snapshot: SnapshotInfo, index: int) -> bytes:
        """
        One chunk of a snapshot; an inline one is chunk 0. Call it in a thread if it is not inline.

        Raises:
            StorageDamaged: It is not what was stored.
        """

    @abstractmethod
    def garbage(self, count_max: int, allow: Callable[[Garbage], bool] = anything) -> list[Garbage]:
        """What is not reclaimed yet and may be."""

    @abstractmethod
    def unlink(self, garbage: Garbage) -> None:
        """
        Remove the file of a snapshot. Slow; call it in a thread. Twice is as good as once.

        Raises:
            OSError: It cannot be removed.
        """

    @abstractmethod
    def compact(self, first: tuple[int, int], last: tuple[int, int]) -> None:
        """
        Give the room of what was reclaimed back to the disk. Slow; call it in a thread.

        From a record to before another, each an id and a byte offset.
        """

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Room left on the disk beyond what is kept in reserve; None where it does not matter."""

    def sizes(self) -> dict[str, int]:
        """What is stored, in bytes by where it lies; for people, and so not to the byte."""
        return {}

    def log_bytes(self) -> int | None:
        """The size of the log, if there is one. Looks at files: call it in a thread."""
        return None

    def cache_looks(self) -> tuple[int, int] | None:
        """How often storage found what it needed in memory, and how often it did not."""
        return None

    def copy(self) -> StoreCopy | None:
        """A copy of all that is stored, yet to be taken; None where there are no files to copy."""
        return None

    @abstractmethod
    def interrupt(self) -> None:
        """Make a `compact` under way in a thread return early."""

    @abstractmethod
    def close(self) -> None: ...
