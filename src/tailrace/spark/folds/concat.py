"""
Concatenation: the state is the concatenated messages, or for a JSON stream an array of them.

The stream does not become smaller, but a reader gets it in one body, and the server stores one
body instead of many records.
"""

from collections.abc import Sequence

from tailrace.spark.folds.base import StateRefused

__all__ = ["ConcatBytes", "ConcatJson"]


class ConcatBytes:
    """The messages, concatenated."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def start(self, snapshot: bytes | None) -> None:
        self._parts = [snapshot] if snapshot else []

    def take(self, values: Sequence[bytes]) -> None:
        # Joined now: a list of millions of small parts takes several times their size.
        self._parts.append(b"".join(values))

    def finish(self) -> bytes:
        return b"".join(self._parts)


class ConcatJson:
    """All messages, as one array."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def start(self, snapshot: bytes | None) -> None:
        self._parts = []
        if snapshot is None:
            return
        inner = snapshot.strip()
        if inner[:1] != b"[" or inner[-1:] != b"]":
            raise StateRefused("the snapshot is not a JSON array")
        inner = inner[1:-1].strip()
        if inner:
            self._parts.append(inner)

    def take(self, values: Sequence[bytes]) -> None:
        if values:
            self._parts.append(b",".join(values))

    def finish(self) -> bytes:
        return b"[" + b",".join(self._parts) + b"]"
