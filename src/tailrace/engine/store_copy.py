"""
A consistent copy of a store, made while it is in use.

    prepare   in a thread   make what follows short
    take      on the loop   between two group commits: what the copy shows is what was durable then
    gather    in a thread   the files that it is made of
    discard   in a thread   when they were sent, or when nobody wants them any more

What is stored never changes, it only goes: the copy is made of hard links, and takes room only for
what is deleted while it exists.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

__all__ = ["CopiedFile", "StoreCopy"]


class CopiedFile(NamedTuple):
    """A file of a copy."""

    name: str
    """Where it belongs below a data directory."""
    path: Path
    size: int


class StoreCopy(ABC):
    """One copy. Its methods are called in their order, and `discard` whatever became of others."""

    storage_format: int
    """The version of the form that its files have."""

    @abstractmethod
    def prepare(self) -> None:
        """Raises OSError if it cannot be done."""

    @abstractmethod
    def take(self) -> dict[str, int]:
        """
        Returns where the store was: its counters.

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
        """Remove it. Twice is as good as once."""
