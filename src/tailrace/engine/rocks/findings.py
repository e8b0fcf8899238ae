"""The results of a check: damage, and remarks that are not damage."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tailrace.exceptions import TailraceError
from tailrace.protocol.names import bucket_of

__all__ = ["Damage", "Finding", "NotChecked", "Remark", "Report", "stream_name"]


class Damage(TailraceError):
    """A file, or a stream, is not what was written, from this byte of it on."""

    message = "{reason}"
    offset: int
    reason: str


class NotChecked(TailraceError):
    """A file, or the rest of it, has a form that this version of Tailrace does not know."""

    message = "not checked: {reason}"
    offset: int
    reason: str


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One damage."""

    problem: str
    file: str = ""
    """Relative to the data directory."""
    stream: str = ""
    """Its bucket, a slash and its id; or its path on the base surface."""
    offset: int | None = None
    """The byte of the file, or of the stream if there is no file."""

    def line(self) -> str:
        where = [f"stream {self.stream}"] if self.stream else []
        if self.file or not where:
            where.append(self.file or "database")
        if self.offset is not None:
            where.append(f"byte {self.offset}")
        return f"{', '.join(where)}: {self.problem}"


class Remark(msgspec.Struct, frozen=True):
    """Something that is not damage: a torn log, or what was not checked."""

    remark: str
    file: str
    """Relative to the data directory."""
    offset: int

    def line(self) -> str:
        return f"{self.file}, byte {self.offset}: {self.remark}"


Report: TypeAlias = Callable[[Finding], object]


def stream_name(key: bytes) -> str:
    """The name of a stream as users know it."""
    bucket = bucket_of(key)
    name = key[len(bucket) + 1 :].decode(errors="backslashreplace")
    return f"{bucket.decode(errors='backslashreplace')}/{name}" if bucket else name
