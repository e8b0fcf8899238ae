"""The records of a stream: a fork reads what it inherits where it is stored, in other streams."""

from collections.abc import Iterator

from tailrace.engine.base import Store
from tailrace.engine.codec import HEAD, cut_record
from tailrace.engine.errors import StorageDamaged
from tailrace.protocol.fork import ForkOrigin
from tailrace.protocol.state import StreamState

__all__ = ["scan"]


def scan(store: Store, state: StreamState, start: int, end: int) -> Iterator[bytes]:
    """Stored records in a range of bytes, from the one that contains `start` on."""
    fork = state.fork
    if fork is None or start >= fork.point.byte:
        return store.scan(state.id, start, end)
    return _scan_fork(store, state.id, fork, start, end)


def _scan_fork(
    store: Store, stream_id: int, fork: ForkOrigin, start: int, end: int
) -> Iterator[bytes]:
    at = start
    for segment in fork.segments(start):
        if at >= end:
            return
        until = segment.end.byte
        for value in store.scan(segment.id, at, min(end, until)):
            _, _, _, head, _, _, first, _ = HEAD.unpack_from(value)
            at = first + len(value) - head
            if at > until:
                # The fork point is inside of a batch of messages.
                value = cut_record(value, segment.end)
                at = until
            yield value
        if at < min(end, until):
            raise StorageDamaged(segment.end.token())
    if at < end:
        yield from store.scan(stream_id, at, end)
