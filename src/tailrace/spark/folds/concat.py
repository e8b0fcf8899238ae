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

    def __init__(self, snapshot: bytes | None) -> None:
        self._parts = [snapshot or b""]

    def take(self, values: Sequence[bytes]) -> None:
        # Joined now: a list of millions of small parts takes several times their size.
        self._parts.append(b"".join(values))

    def finish(self) -> bytes:
        return b"".join(self._parts)


class ConcatJson:
    """All messages, as one array."""

    def __init__(self, snapshot: bytes | None) -> None:
        array = b"[]" if snapshot is None else snapshot.strip()
        if array[:1] != b"[" or array[-1:] != b"]":
            raise StateRefused("the snapshot is not a JSON array")
        inner = array[1:-1].strip()
        self._parts = [inner] if inner else []

    def take(self, values: Sequence[bytes]) -> None:
        if values:
            self._parts.append(b",".join(values))

    def finish(self) -> bytes:
        return b"[" + b",".join(self._parts) + b"]"
