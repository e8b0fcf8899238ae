"""
Reads whole messages from stored records.

A record has one message or a batch of them. An offset may be inside of a batch, and a limit may
split one: always at a message boundary, which the record's lengths give.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from tailrace.engine.base import Store
from tailrace.engine.codec import HEAD, lengths_of, producer_of
from tailrace.engine.errors import StorageDamaged
from tailrace.engine.stitch import scan
from tailrace.protocol.errors import OffsetBeyondTail, OffsetGone, OffsetMisaligned
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState

__all__ = ["Slice", "check_bounds", "locate", "read_records", "read_slice"]


RECORD_SLICES_MAX: Final = 16
"""A record is read whole for each slice of it; it is split into at most this many slices."""
RECORD_WHOLE_BYTES_MAX: Final = 4 << 20
"""`read_records` returns a record of up to this size in one slice."""
RECORDS_MAX: Final = 1024
"""At most this many records per slice: they may be of one byte each."""
MESSAGES_MAX: Final = 65_536
"""At most this many messages per slice."""
_FIT_COUNT: Final = 4096


class Slice(NamedTuple):
    """Stored bytes of the messages between two offsets, one part per record."""

    start: Offset
    end: Offset
    parts: list[bytes | memoryview]
    lengths: list[Sequence[int]]
    """Of the messages in each part, if requested."""
    times: Sequence[int] = ()
    """When each part was committed, if requested."""
    producers: Sequence[str | None] = ()
    """The producer of each part, if requested."""


def check_bounds(state: StreamState, offset: Offset) -> None:
    """Check an offset against the state only; raises the same as `locate`."""
    tail, earliest = state.tail, state.earliest
    if offset.byte > tail.byte or offset.message > tail.message:
        raise OffsetBeyondTail(offset.token(), tail.token())
    if offset.byte < earliest.byte:
        raise OffsetGone(offset.token(), earliest.token())
    for known in (tail, earliest):
        if offset.byte == known.byte and offset.message != known.message:
            raise OffsetMisaligned(offset.token())


def locate(store: Store, state: StreamState, offset: Offset) -> None:
    """
    Check an offset without reading the messages after it.

    Raises:
        OffsetBeyondTail, OffsetGone, OffsetMisaligned: It is not one that this stream returned.
    """
    check_bounds(state, offset)
    if offset != state.tail and offset != state.earliest:
        read_slice(store, state, offset, 1)


def read_slice(
    store: Store, state: StreamState, start: Offset, bytes_max: int, *, lengths: bool = False
) -> Slice:
    """
    Whole messages from `start` on, at most `bytes_max` unless the first alone is larger.

    `lengths` adds the lengths of messages, and takes more of a large batch.

    Raises:
        OffsetBeyondTail, OffsetGone, OffsetMisaligned: As for `locate`.
        StorageDamaged: What was stored cannot be read.
    """
    check_bounds(state, start)
    found = Slice(start, start, [], [])
    if start == state.tail:
        return found
    message, byte = start
    room = bytes_max
    for value in scan(store, state, start.byte, state.tail.byte):
        _, _, _, head, count, first_message, first_byte, _ = HEAD.unpack_from(value)
        size = len(value) - head
        skipped = 0
        if first_byte != byte or first_message != message:
            # The first record may begin before the offset, which is inside of it.
            skipped = _skip(value, head, count, message - first_message, byte - first_byte, start)
            size -= byte - first_byte
        if lengths and not found.parts:
            room = max(room, (len(value) - head) // RECORD_SLICES_MAX)
        taken, length = count - skipped, size
        if size > room:
            taken, length = _fit(value, head, count, skipped, room, first=not found.parts)
        if length:
            at = len(value) - size
            found.parts.append(memoryview(value)[at : at + length])
            if lengths:
                found.lengths.append(lengths_of(value, head, count)[skipped : skipped + taken])
                _let_go(found.parts, value)
        message += taken
        byte += length
        room -= length
        if length < size:
            return found._replace(end=Offset(message, byte))
    if byte != state.tail.byte:
        # Records are missing: the scan ended before the tail.
        raise StorageDamaged(start.token())
    return found._replace(end=Offset(message, byte))


def read_records(
    store: Store,
    state: StreamState,
    start: Offset,
    until: Offset,
    bytes_about: int,
    bytes_max: int,
    *,
    details: bool = True,
    producers: bool = False,
) -> Slice:
    """
    Messages from one known offset towards another; with `details`, the lengths and times too.

    Record by record: about `bytes_about`, and more if a record is larger, since each is read whole;
    but never more than `bytes_max`, unless the first message alone is larger. Fewer, if they are
    very small.

    Raises:
        OffsetMisaligned: `start` is not a message boundary.
        StorageDamaged: What was stored cannot be read.
    """
    message, byte = start
    parts: list[bytes | memoryview] = []
    lengths: list[Sequence[int]] = []
    times: list[int] = []
    names: list[str | None] = []
    room = min(bytes_about, bytes_max)
    for value in scan(store, state, byte, until.byte):
        _, _, _, head, count, first_message, first_byte, time = HEAD.unpack_from(value)
        skipped = 0
        if first_byte != byte or first_message != message:
            skipped = _skip(value, head, count, message - first_message, byte - first_byte, start)
        size = len(value) - head - (byte - first_byte)
        if not parts:
            # The rest of a split record is read again: split it seldom.
            whole = size if size <= RECORD_WHOLE_BYTES_MAX else size // RECORD_SLICES_MAX
            room = min(max(room, whole), bytes_max)
        elif size > room or message + count - start.message > MESSAGES_MAX:
            break
        taken, length = min(count - skipped, MESSAGES_MAX), size
        fitting = min(room, until.byte - byte)
        if size > fitting or taken < count - skipped:
            end = skipped + taken
            taken, length = _fit(value, head, count, skipped, fitting, first=not parts, end=end)
        at = len(value) - size
        parts.append(memoryview(value)[at : at + length])
        _let_go(parts, value)
        if details:
            lengths.append(lengths_of(value, head, count)[skipped : skipped + taken])
            times.append(time)
        if producers:
            names.append(producer_of(value))
        message += taken
        byte += length
        room -= length
        if length < size or room <= bytes_about // 2 or len(parts) == RECORDS_MAX:
            # Do not read another record that will not fit.
            break
    if not parts and start != until:
        raise StorageDamaged(start.token())
    return Slice(start, Offset(message, byte), parts, lengths, times, names)


def _let_go(parts: list[bytes | memoryview], value: bytes) -> None:
    """Copy a small part of a large batch, so that a slow reader does not keep all of it."""
    if len(parts[-1]) < len(value) // 2:
        parts[-1] = bytes(parts[-1])


def _skip(value: bytes, head: int, count: int, messages: int, size: int, start: Offset) -> int:
    """The number of messages of a batch before an offset, which must be one of its boundaries."""
    if not 0 < messages < count or sum(lengths_of(value, head, count)[:messages]) != size:
        raise OffsetMisaligned(start.token())
    return messages


def _fit(
    value: bytes,
    head: int,
    count: int,
    skipped: int,
    room: int,
    *,
    first: bool,
    end: int | None = None,
) -> tuple[int, int]:
    """How many messages of a batch, up to `end`, fit, and their bytes; the first always does."""
    lengths = lengths_of(value, head, count)
    taken = length = 0
    end = count if end is None else end
    for at in range(skipped, end, _FIT_COUNT):
        ends = list(accumulate(lengths[at : min(end, at + _FIT_COUNT)], initial=length))
        # `room` may be negative: then `bisect_right` returns 0.
        fitting = max(0, bisect_right(ends, room) - 1)
        taken, length = taken + fitting, ends[fitting]
        if fitting < len(ends) - 1:
            break
    if first and not taken:
        return 1, lengths[skipped]
    return taken, length
