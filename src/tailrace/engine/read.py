"""
Reading whole messages out of stored records.

A record holds one message or a batch of them; an offset may lie inside a batch, and a limit may cut
one. Both always fall on message boundaries, which the record's lengths give.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from tailrace.engine.base import Store
from tailrace.engine.codec import HEAD, lengths_of
from tailrace.engine.errors import StorageDamaged
from tailrace.protocol.errors import OffsetBeyondTail, OffsetGone, OffsetMisaligned
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState

__all__ = ["Slice", "locate", "read_slice"]


RECORD_SLICES_MAX: Final = 16
"""A record is read whole for each slice of it: where nothing else forbids, in so many at most."""


class Slice(NamedTuple):
    """Stored bytes of the messages between two offsets, a piece for each record."""

    start: Offset
    end: Offset
    parts: list[bytes | memoryview]
    lengths: list[Sequence[int]]
    """Of the messages in each part, if they were asked for."""


def _bounds(state: StreamState, offset: Offset) -> None:
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
    Check an offset without reading what follows it.

    Raises:
        OffsetBeyondTail, OffsetGone, OffsetMisaligned: It is not one that this stream returned.
    """
    _bounds(state, offset)
    if offset != state.tail and offset != state.earliest:
        read_slice(store, state, offset, 1)


def read_slice(
    store: Store, state: StreamState, start: Offset, bytes_max: int, *, lengths: bool = False
) -> Slice:
    """
    Whole messages from `start` on, at most `bytes_max` unless the first alone is larger.

    `lengths` says where in it messages end, and takes more of a batch that is large.

    Raises:
        OffsetBeyondTail, OffsetGone, OffsetMisaligned: As for `locate`.
        StorageDamaged: What was stored cannot be read.
    """
    _bounds(state, start)
    found = Slice(start, start, [], [])
    if start == state.tail:
        return found
    message, byte = start
    room = bytes_max
    for value in store.scan(state.id, start.byte, state.tail.byte):
        _, _, _, head, count, first_message, first_byte, _ = HEAD.unpack_from(value)
        size = len(value) - head
        skipped = 0
        if first_byte != byte or first_message != message:
            # Only the first record can begin elsewhere: before the offset, which lies inside it.
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
                _measure(found, value, head, count, skipped, taken)
        message += taken
        byte += length
        room -= length
        if length < size:
            return found._replace(end=Offset(message, byte))
    if byte != state.tail.byte:
        # All of the stream is stored, so something that was stored is not there.
        raise StorageDamaged(start.token())
    return found._replace(end=Offset(message, byte))


def _measure(found: Slice, value: bytes, head: int, count: int, skipped: int, taken: int) -> None:
    """Add the lengths of the messages in the part that was just added."""
    found.lengths.append(lengths_of(value, head, count)[skipped : skipped + taken])
    if len(found.parts[-1]) < len(value) // 2:
        # Whoever takes his time with a piece of a large batch must not hold all of it.
        found.parts[-1] = bytes(found.parts[-1])


def _skip(value: bytes, head: int, count: int, messages: int, size: int, start: Offset) -> int:
    """How many messages of a batch lie before an offset, which must be one of its boundaries."""
    if not 0 < messages < count or sum(lengths_of(value, head, count)[:messages]) != size:
        raise OffsetMisaligned(start.token())
    return messages


def _fit(
    value: bytes, head: int, count: int, skipped: int, room: int, *, first: bool
) -> tuple[int, int]:
    """How many more messages of a batch fit, and their bytes; the very first always does."""
    taken = length = 0
    for one in islice(lengths_of(value, head, count), skipped, None):
        if length + one > room and not (first and taken == 0):
            break
        taken += 1
        length += one
    return taken, length
