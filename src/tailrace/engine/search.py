"""
Finds the offset of a message, a byte or a time in a stream, by reading few records.

`align` and `end_within` are for reads: where one starts that has an offset which clients computed,
and where one ends that may have a number of bytes.

The record that contains a byte is found directly. Each record that is read says which messages and
which time it has, and so halves the range that is left, or better.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from tailrace.engine.base import Store
from tailrace.engine.codec import HEAD, lengths_of
from tailrace.engine.errors import StorageDamaged
from tailrace.engine.read import read_slice
from tailrace.engine.stitch import scan
from tailrace.protocol.errors import (
    ForkSubOffsetBeyond,
    OffsetBeyondTail,
    OffsetGone,
    OffsetMisaligned,
)
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import ForkPoint, StreamState

__all__ = ["align", "end_within", "find_byte", "find_fork_point", "find_message", "find_time"]


class _Found(NamedTuple):
    """A stored record, and the fields of its header."""

    value: bytes
    head: int
    messages: int
    message: int
    byte: int
    time: int

    @property
    def end(self) -> int:
        return self.byte + len(self.value) - self.head


def _record_at(store: Store, state: StreamState, byte: int) -> _Found:
    """The record that contains a retained byte."""
    for value in scan(store, state, byte, byte + 1):
        _, _, _, head, count, message, first, time = HEAD.unpack_from(value)
        found = _Found(value, head, count, message, first, time)
        if found.byte <= byte < found.end:
            return found
    raise StorageDamaged(state.earliest.token())


def _within(found: _Found, count: int) -> Offset:
    """The boundary after this many messages of a record."""
    lengths = lengths_of(found.value, found.head, found.messages)
    return Offset(found.message + count, found.byte + sum(lengths[:count]))


def find_message(store: Store, state: StreamState, message: int) -> Offset:
    """The boundary before a message, by its number; within what is retained."""
    if message <= state.earliest.message:
        return state.earliest
    low, high = state.earliest, state.tail
    halve = False
    while message < high.message:
        # Alternate: interpolate as if all messages had one size, which is seldom far off; and
        # bisect, which always terminates.
        size = high.byte - low.byte
        share = size * (message - low.message) // (high.message - low.message)
        at = low.byte + (size // 2 if halve else min(share, size - 1))
        halve = not halve
        found = _record_at(store, state, at)
        if message < found.message:
            high = Offset(found.message, found.byte)
        elif message >= found.message + found.messages:
            low = Offset(found.message + found.messages, found.end)
        else:
            return _within(found, message - found.message)
    return high


def find_byte(store: Store, state: StreamState, byte: int) -> Offset:
    """The last boundary at or before a byte; within what is retained."""
    if byte >= state.tail.byte:
        return state.tail
    if byte <= state.earliest.byte:
        return state.earliest
    found = _record_at(store, state, byte)
    lengths = lengths_of(found.value, found.head, found.messages)
    count = bisect_right(list(accumulate(lengths)), byte - found.byte)
    return max(state.earliest, _within(found, count))


def find_time(store: Store, state: StreamState, time: int) -> Offset:
    """
    The boundary before the first message that was committed at or after a time.

    By the server's clock at the commit. Where it was set back, the result is approximate.
    """
    best = state.tail
    if time > state.written_at:
        return best
    low, high = state.earliest.byte, best.byte
    while low < high:
        found = _record_at(store, state, (low + high) // 2)
        if found.time >= time:
            best = Offset(found.message, found.byte)
            high = found.byte
        else:
            low = found.end
    # The first retained record may begin before the earliest offset.
    return max(state.earliest, best)


def find_fork_point(store: Store, state: StreamState, offset: Offset, sub_offset: int) -> ForkPoint:
    """
    Where a fork at an offset and a sub-offset begins; the offset is retained and before the tail.

    Raises:
        OffsetMisaligned: The offset is not a message boundary.
        ForkSubOffsetBeyond: The record there has fewer messages (JSON) or bytes.
    """
    found = _record_at(store, state, offset.byte)
    skipped = offset.message - found.message
    if not 0 <= skipped < found.messages or _within(found, skipped) != offset:
        raise OffsetMisaligned(offset.token())
    if not sub_offset:
        return ForkPoint(offset)
    available = found.messages - skipped if state.json else found.end - found.byte
    if sub_offset > available:
        unit = "messages" if state.json else "bytes"
        raise ForkSubOffsetBeyond(sub_offset, offset.token(), available, unit)
    if state.json:
        return ForkPoint(_within(found, skipped + sub_offset))
    if sub_offset == available:
        return ForkPoint(_within(found, 1))
    return ForkPoint(offset, found.value[found.head : found.head + sub_offset])


def align(store: Store, state: StreamState, offset: Offset) -> Offset:
    """
    The last boundary at or before an offset that a client computed.

    Neither its message nor its byte is past the given one, so that a read from there skips nothing.
    One byte past the tail is the tail: some clients add one to the byte of the last offset.

    Raises:
        OffsetBeyondTail, OffsetGone: It is further past the tail, or no longer retained.
    """
    tail, earliest = state.tail, state.earliest
    if offset.byte > tail.byte + 1 or offset.message > tail.message:
        raise OffsetBeyondTail(offset.token(), tail.token())
    if offset < earliest or offset.byte < earliest.byte:
        raise OffsetGone(offset.token(), earliest.token())
    found = find_byte(store, state, offset.byte)
    return found if found.message <= offset.message else find_message(store, state, offset.message)


def end_within(store: Store, state: StreamState, start: Offset, bytes_max: int) -> Offset:
    """Where a read from a boundary ends: after `bytes_max`, or one message if it is larger."""
    if state.tail.byte - start.byte <= bytes_max:
        return state.tail
    end = find_byte(store, state, start.byte + bytes_max)
    return end if end > start else read_slice(store, state, start, 1).end
