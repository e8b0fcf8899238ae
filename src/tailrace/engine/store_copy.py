"""
A consistent copy of a store, made while it is in use.

    prepare   in a thread   makes `take` short
    take      on the loop   between two group commits: the copy has what is durable at that moment
    gather    in a thread   returns the files of the copy
    discard   in a thread   when they were sent, or are no longer wanted

Stored data never changes, it is only deleted. So the copy consists of hard links, and takes space
only for what is deleted while it exists.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

__all__ = ["CopiedFile", "StoreCopy"]


class CopiedFile(NamedTuple):
    """A file of a copy."""

    name: str
    """Its path relative to the data directory."""
    path: Path
    size: int


class StoreCopy(ABC):
    """One copy. Its methods are called in their order; `discard` is called in any case."""

    storage_format: int
    """The storage format of its files."""

    @abstractmethod
    def prepare(self) -> None:
        """Raises OSError if it cannot be done."""

    @abstractmethod
    def take(self) -> dict[str, int]:
        """
        Returns the counters of the store at that moment.

        Raises:
            OSError: It cannot be done; the disk may be full.
        """

    @abstractmethod
    def gather(self) -> list[CopiedFile]:
        """
        No file of a snapshot may be unlinked between `take` and the end of this.

        Raises:
            OSError: It cannot be done; the disk may be full.
        """

    @abstractmethod
    def discard(self) -> None:
        """Remove it, if it exists."""
