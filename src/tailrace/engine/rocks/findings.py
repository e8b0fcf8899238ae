"""What a check finds: where, and what is wrong there."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tailrace.protocol.names import bucket_of

__all__ = ["Finding", "Note", "Remark", "stream_name"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is not as it was stored."""

    problem: str
    file: str = ""
    """Below the data directory."""
    stream: str = ""
    """Its bucket, a slash and its id; or its path on the base surface."""
    offset: int | None = None
    """The byte of the file; without one, of the stream."""

    def line(self) -> str:
        where = [f"stream {self.stream}"] if self.stream else []
        if self.file or not where:
            where.append(self.file or "database")
        if self.offset is not None:
            where.append(f"byte {self.offset}")
        return f"{', '.join(where)}: {self.problem}"


class Remark(msgspec.Struct, frozen=True):
    """Something worth knowing that is no damage."""

    remark: str
    file: str
    """Below the data directory."""
    offset: int

    def line(self) -> str:
        return f"{self.file}, byte {self.offset}: {self.remark}"


Note: TypeAlias = Callable[[Finding], object]


def stream_name(key: bytes) -> str:
    """A stream as people know it, by its key."""
    bucket = bucket_of(key)
    name = key[len(bucket) + 1 :].decode(errors="backslashreplace")
    return f"{bucket.decode(errors='backslashreplace')}/{name}" if bucket else name
