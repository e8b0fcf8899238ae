"""
The content of a stream between two offsets, read while it is sent.

The caller has pinned the state, so that what is read stays in storage. Only one piece is in memory
at a time, however large the content is. A large message is read again for each of its pieces,
unless it was read a moment ago: a reader that never reads holds one piece of it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from tailrace.engine.engine import Engine
from tailrace.engine.errors import StorageDamaged
from tailrace.engine.read import Slice, read_records
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState

__all__ = ["ContentReader", "content_length"]

PIECE_BYTES: Final = 256 << 10
LARGE_BYTES: Final = 1 << 20
"""A larger message is sent in pieces of its own."""
LARGE_PIECES_MAX: Final = 32
"""More pieces would be smaller, and would read the message more often."""
LARGE_KEPT_BYTES: Final = 256 << 20
"""At most this much of large messages is kept: reading one again for each piece blocks the loop."""
_KEPT_S: Final = 5.0


def content_length(state: StreamState, start: Offset, end: Offset) -> int:
    """The length of the body of a read: in JSON mode, brackets replace the last comma."""
    size = end.byte - start.byte
    return size + 1 if state.json and size else size


class ContentReader:
    """Reads content, and keeps the last large messages for the next pieces and other readers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # The last used is the last.
        self._large: dict[tuple[int, Offset], Slice] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def pieces(self, state: StreamState, start: Offset, end: Offset) -> AsyncIterator[bytes]:
        """The body of a read between two different boundaries, in pieces."""
        opening = b"[" if state.json else b""
        left = end.byte - start.byte
        async for piece in self._stored(state, start, end):
            left -= len(piece)
            if state.json:
                piece = opening + piece if left else opening + piece[:-1] + b"]"
                opening = b""
            yield piece
        if left:
            # The headers promised more, or less.
            raise StorageDamaged(start.token())

    async def _stored(self, state: StreamState, start: Offset, end: Offset) -> AsyncIterator[bytes]:
        """The stored bytes, in pieces."""
        while start != end:
            found = self._read(state, start, end)
            at, start = start, found.end
            size = start.byte - at.byte
            data = b"".join(found.parts) if size <= LARGE_BYTES else None
            # A generator keeps its variables while its client is slow.
            del found
            if data is not None:
                yield data
                # Other requests have their turn between two pieces.
                await asyncio.sleep(0)
                continue
            share = max(LARGE_BYTES, -(-size // LARGE_PIECES_MAX))
            for first in range(0, size, share):
                yield bytes(self._read(state, at, end).parts[0][first : first + share])
                await asyncio.sleep(0)

    def _read(self, state: StreamState, start: Offset, end: Offset) -> Slice:
        """A slice from a boundary on; a message that is larger than a slice is kept for a while."""
        if (large := self._large.pop((state.id, start), None)) is not None:
            self._large[state.id, start] = large
            return large
        found = read_records(
            self._engine.store, state, start, end, PIECE_BYTES, LARGE_BYTES, details=False
        )
        if found.end.byte - start.byte > LARGE_BYTES:
            self._keep(state, found)
        return found

    def _keep(self, state: StreamState, piece: Slice) -> None:
        self._large[state.id, piece.start] = piece
        size = sum(kept.end.byte - kept.start.byte for kept in self._large.values())
        while size > LARGE_KEPT_BYTES and len(self._large) > 1:
            oldest = self._large.pop(next(iter(self._large)))
            size -= oldest.end.byte - oldest.start.byte
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_KEPT_S, self._forget)

    def _forget(self) -> None:
        self._large.clear()
        self._timer = None
