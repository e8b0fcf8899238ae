"""Acknowledgements: whether a cursor may move where a worker wants it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tailrace.engine.entry import StreamEntry
from tailrace.engine.subscriptions.entry import SubscriptionEntry, lives
from tailrace.protocol.errors import OffsetGone, OffsetInvalid
from tailrace.protocol.offset import START, Offset, parse_offset
from tailrace.protocol.subscription import LinkedStream, offset_text
from tailrace.protocol.subscription_errors import InvalidAck

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["check_acks", "told_tails"]

UNKNOWN: Final = "it is not a stream of this subscription"


def check_acks(
    engine: "Engine",
    entry: SubscriptionEntry,
    acks: Sequence[tuple[str, str]],
    is_readable: Callable[[SubscriptionEntry, bytes], bool],
) -> dict[bytes, Offset | None]:
    """
    The cursors after these acknowledgements; None where nothing is pending any more.

    All are checked before any is applied.

    Raises:
        InvalidAck: One of them cannot be applied.
    """
    moves: dict[bytes, Offset | None] = {}
    for name, token in acks:
        path = name.strip("/").encode()
        key = entry.stream_key(path)
        if not entry.is_linked(path) or not is_readable(entry, key):
            raise InvalidAck(name, UNKNOWN)
        try:
            offset = parse_offset(token)
        except OffsetInvalid as invalid:
            raise InvalidAck(name, f"{token!r} is not an offset that was read") from invalid
        stream = engine.stream(key)
        state = stream.state if lives(stream.state) else None
        if state is None and path not in entry.explicit:
            raise InvalidAck(name, UNKNOWN)
        tail = START if state is None else state.tail
        cursor = moves.get(path) or (tail if path in moves else entry.cursor(path, state))
        if offset < cursor:
            raise InvalidAck(name, f"{token} is before its cursor {offset_text(cursor)}")
        if offset > tail:
            raise InvalidAck(name, f"{token} is past its tail {tail.token()}")
        if offset not in (cursor, tail):
            _check_boundary(engine, name, stream, offset)
        if path in entry.cursors:
            moves[path] = None if offset == tail else offset
    return moves


def _check_boundary(engine: "Engine", name: str, stream: StreamEntry, offset: Offset) -> None:
    """A cursor is where reading continues, so it must be between two messages."""
    try:
        if stream.durable is None:
            raise OffsetInvalid(offset.token())
        engine.locate(stream, offset)
    except OffsetGone:
        # Before a snapshot: it was a boundary when it was read.
        return
    except OffsetInvalid as invalid:
        raise InvalidAck(name, f"{offset.token()} is not between two messages") from invalid


def told_tails(
    engine: "Engine", entry: SubscriptionEntry, streams: Sequence[LinkedStream]
) -> dict[bytes, Offset | None]:
    """The cursors after a webhook was done with the tails that it was told."""
    moves: dict[bytes, Offset | None] = {}
    for told in streams:
        path = told.path.encode()
        cursor = entry.cursors.get(path)
        if cursor is None:
            continue
        state = engine.stream(entry.stream_key(path)).state
        # A stream that was deleted and created again is another one.
        if state is not None and state.id == told.stream_id and told.tail > cursor:
            moves[path] = None if told.tail >= state.tail else told.tail
    return moves
