"""
What a stream inherits from the streams that it was forked from (forks, today.md).

Inherited data is not copied. A fork knows for each part of it which stream stores the part, and
where the part ends. The list is complete: a read never follows a chain of forks.
"""

from collections.abc import Iterable, Iterator
from struct import Struct as Form
from typing import Final, NamedTuple

from msgspec import Struct

from tailrace.protocol.offset import Offset

__all__ = ["ForkOrigin", "Segment", "pack_segments"]

# The id of the stream, and the message and the byte of the end. Packed, because a cached stream
# may have a thousand of them.
_SEGMENT: Final = Form(">QQQ")


class Segment(NamedTuple):
    """Inherited messages that one stream stores; they begin where the segment before it ends."""

    id: int
    end: Offset


def pack_segments(segments: Iterable[Segment]) -> bytes:
    return b"".join([_SEGMENT.pack(item.id, *item.end) for item in segments])


class ForkOrigin(Struct, frozen=True, array_like=True, gc=False):
    """The source of a fork, and what the fork inherits. Never changes."""

    key: bytes
    """The name of the source, which nothing else has while the fork exists."""
    id: int
    offset: Offset
    """The fork offset: as requested, or the tail of the source at that time."""
    sub_offset: int
    point: Offset
    """Everything before it is inherited; the fork's own records begin there."""
    snapshot_id: int | None = None
    """The inherited snapshot, which belongs to the source."""
    inherited: bytes = b""
    """Segments, packed, from the earliest retained offset to `point`."""

    def segments(self, start: int = 0) -> Iterator[Segment]:
        """The segments from the one that contains a byte on."""
        for index in range(self._first(start), len(self.inherited) // _SEGMENT.size):
            yield self._segment(index)

    def inherited_until(self, start: Offset, end: Offset) -> bytes:
        """The segments between two offsets, as a fork of this fork inherits them."""
        first, last = self._first(start.byte), self._first(end.byte)
        packed = self.inherited[first * _SEGMENT.size : last * _SEGMENT.size]
        if last < len(self.inherited) // _SEGMENT.size:
            segment = self._segment(last)
            begin = self._segment(last - 1).end if last else start
            if max(begin, start) < end:
                packed += _SEGMENT.pack(segment.id, *end)
        return packed

    def _segment(self, index: int) -> Segment:
        stream_id, message, byte = _SEGMENT.unpack_from(self.inherited, index * _SEGMENT.size)
        return Segment(stream_id, Offset(message, byte))

    def _first(self, byte: int) -> int:
        """The index of the first segment that ends after a byte."""
        low, high = 0, len(self.inherited) // _SEGMENT.size
        while low < high:
            middle = (low + high) // 2
            if self._segment(middle).end.byte > byte:
                high = middle
            else:
                low = middle + 1
        return low
