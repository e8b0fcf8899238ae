"""
Where a streaming query stands: one mark a stream, kept by Spark in its checkpoint as JSON.

A mark is the offset, and what tells a stream from a later one of the same name:

    {offset}                     the rest is not known: another server
    {offset}@{created at, ms}
    {offset}@{created at, ms}:c  read to the end of a closed stream: it may go, nothing is lost

Where the time is not known but something else is to be said, it is empty.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["Mark", "Marks", "dump_marks", "load_marks", "parse_mark"]

_STREAMS: Final = "streams"


class Mark(NamedTuple):
    """How far one stream was read."""

    offset: str
    created_ms: int | None = None
    done: bool = False
    """It is closed, and was read to its end."""

    def text(self) -> str:
        if self.created_ms is None and not self.done and "@" not in self.offset:
            return self.offset
        created = "" if self.created_ms is None else str(self.created_ms)
        return f"{self.offset}@{created}{':c' if self.done else ''}"


Marks = dict[str, str]
"""By the stream's name, each as its text: most are never looked into."""


def parse_mark(text: str) -> Mark:
    """The inverse of `Mark.text`."""
    offset, at, rest = text.rpartition("@")
    if not at:
        return Mark(text)
    created, colon, _ = rest.partition(":")
    return Mark(offset, int(created) if created else None, bool(colon))


def dump_marks(marks: Marks) -> dict[str, Any]:
    """What Spark writes into the checkpoint."""
    return {_STREAMS: marks}


def load_marks(offset: Mapping[str, Any]) -> Marks:
    """What Spark read from the checkpoint."""
    return dict(offset[_STREAMS])
