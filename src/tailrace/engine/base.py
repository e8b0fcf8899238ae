"""
The contract of a store. One suite, `tests/contract`, runs over every implementation.

A store keeps, for each stream, a checkpoint of its state and the records that came after it; a
name for each stream; an index of when streams end; and what is left of deleted streams until it is
reclaimed. It judges nothing.

What the engine owes it: all calls come from one thread, except `sync` and `compact`, which may run
in another one beside anything; at most one transaction is being written or synced at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.protocol.offset import Offset
from tailrace.protocol.state import Appended, StreamState

__all__ = ["Due", "Garbage", "Store", "Transaction"]


class Due(NamedTuple):
    """An entry of the expiry index: look at this stream at this moment."""

    deadline: int
    id: int
    key: bytes


class Garbage(NamedTuple):
    """A deleted stream whose records still take up room."""

    id: int
    bytes: int


class Transaction(ABC):
    """Changes that become visible and durable together, or not at all."""

    @abstractmethod
    def create(self, key: bytes, state: StreamState) -> None:
        """Name a stream and store its first checkpoint."""

    @abstractmethod
    def append(self, stream_id: int, at: Offset, record: Appended) -> None:
        """Store a record at the tail before it: one put."""

    @abstractmethod
    def checkpoint(self, key: bytes, state: StreamState) -> None:
        """Store a state, so that loading it need not replay what came before."""

    @abstractmethod
    def delete(self, key: bytes, state: StreamState) -> None:
        """Forget the name and the state; the records become garbage."""

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
    def reclaim(self, garbage: Garbage) -> None:
        """Delete the records of a deleted stream."""


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
    def garbage(self, count_max: int) -> list[Garbage]:
        """Deleted streams that are not reclaimed yet."""

    @abstractmethod
    def compact(self, first_id: int, last_id: int) -> None:
        """Give the room of reclaimed streams back to the disk. Slow; call it in a thread."""

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Room left on the disk beyond what is kept in reserve; None where it does not matter."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make a `compact` under way in a thread return early."""

    @abstractmethod
    def close(self) -> None: ...
