"""What operations return."""

from dataclasses import dataclass

__all__ = ["Appended", "Chunk", "Created", "Head"]


@dataclass(frozen=True, slots=True)
class Created:
    """A stream is there: `new` if this request made it."""

    new: bool
    content_type: str
    next_offset: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Appended:
    """Stored, durably. `duplicate`: it had been stored before, by the same producer request."""

    next_offset: str
    closed: bool
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """What a stream is."""

    content_type: str
    next_offset: str
    closed: bool
    ttl_s: int | None = None
    expires_at: str | None = None
    snapshot_offset: str | None = None
    earliest_offset: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some of a stream's bytes; reading on from `next_offset` misses and repeats nothing."""

    data: bytes
    next_offset: str
    up_to_date: bool
    """There was no more at that moment."""
    closed: bool
    """There will never be more."""
