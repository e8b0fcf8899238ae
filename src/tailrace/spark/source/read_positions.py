"""
How far a streaming query has read each stream. Spark keeps it in the checkpoint, as JSON.

A position is an offset, and the creation time that tells a stream from a later one of its name:

    {offset}                     the creation time is not known: another server
    {offset}@{created at, ms}
    {offset}@{created at, ms}:c  read to the end of a closed stream: its deletion loses no data

The creation time is empty where it is not known and `:c` follows.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = [
    "ReadPosition",
    "ReadPositions",
    "dump_positions",
    "load_positions",
    "parse_position",
]

_STREAMS: Final = "streams"


class ReadPosition(NamedTuple):
    """How far one stream was read."""

    offset: str
    created_ms: int | None = None
    done: bool = False
    """The stream is closed, and was read to its end."""

    def text(self) -> str:
        if self.created_ms is None and not self.done and "@" not in self.offset:
            return self.offset
        created = "" if self.created_ms is None else str(self.created_ms)
        return f"{self.offset}@{created}{':c' if self.done else ''}"


ReadPositions = dict[str, str]
"""By stream, each as its text: most are never parsed."""


def parse_position(text: str) -> ReadPosition:
    """The inverse of `ReadPosition.text`."""
    offset, at, rest = text.rpartition("@")
    if not at:
        return ReadPosition(text)
    created, colon, _ = rest.partition(":")
    return ReadPosition(offset, int(created) if created else None, bool(colon))


def dump_positions(positions: ReadPositions) -> dict[str, Any]:
    """The form that Spark writes to the checkpoint."""
    return {_STREAMS: positions}


def load_positions(offset: Mapping[str, Any]) -> ReadPositions:
    return dict(offset[_STREAMS])
