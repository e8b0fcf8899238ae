"""
Makes `data` events from storage, for readers that catch up.

What is written as text is whole characters: see `whole_text`. Readers that are served together, or
that need the same large event within seconds, share its bytes.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from tailrace.engine.engine import Engine
from tailrace.engine.entry import StreamEntry
from tailrace.engine.read import Slice
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState
from tailrace.server.live import sse
from tailrace.server.live.whole_text import NotText, whole_prefix
from tailrace.server.message import Frame

__all__ = ["TEXT_WAIT_S", "DataEvent", "EventMaker"]

CATCH_UP_BYTES: Final = 128 << 10
"""The approximate size of a catch-up event. A reader that never reads holds one in memory."""
JOINED_BYTES_MAX: Final = 8 << 20
"""Messages are joined up to this size, to find where a character ends."""
TEXT_WAIT_S: Final = 5.0
"""How long a message that ends inside a character waits for the rest of it."""
_LARGE_KEPT_S: Final = 5.0

_Key = tuple[int, Offset, bool]


class DataEvent(NamedTuple):
    """A `data` event, and where it ends."""

    end: Offset
    frame: Frame


class EventMaker:
    """Makes events; keeps the last large one for a moment."""

    def __init__(self, engine: Engine, clock: Callable[[], int], chunk_bytes: int) -> None:
        self._engine = engine
        self._clock = clock
        self._chunk_bytes = chunk_bytes
        self._loop = asyncio.get_running_loop()
        self._large: tuple[_Key, DataEvent] | None = None
        self._large_timer: asyncio.TimerHandle | None = None
        self._shared: dict[_Key, DataEvent | NotText | None] | None = None

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Within the block, make an event once for all readers at the same offset."""
        self._shared = {}
        try:
            yield
        finally:
            self._shared = None

    def begin_text(self, stream: StreamEntry, start: Offset) -> tuple[bool, DataEvent | None]:
        """Whether a session of a text stream can begin as text, and its first event."""
        try:
            first = self.make(stream, start, text=True)
        except NotText:
            return False, None
        assert stream.durable is not None
        waited_ms = self._clock() - stream.durable.written_at
        return first is not None or waited_ms < TEXT_WAIT_S * 1000, first

    def make(self, stream: StreamEntry, start: Offset, *, text: bool) -> DataEvent | None:
        """
        The event of what follows an offset; None if that ends inside a character so far.

        Raises:
            Refusal: The offset is no longer retained.
            NotText: What follows is not UTF-8, and `text` is true.
        """
        state = stream.durable
        assert state is not None
        key = (state.id, start, text)
        if self._large is not None and self._large[0] == key:
            return self._large[1]
        if self._shared is None:
            return self._make(stream, state, key)
        if key not in self._shared:
            try:
                self._shared[key] = self._make(stream, state, key)
            except NotText as error:
                self._shared[key] = error
        found = self._shared[key]
        if isinstance(found, NotText):
            raise NotText
        return found

    def _make(self, stream: StreamEntry, state: StreamState, key: _Key) -> DataEvent | None:
        _, start, text = key
        if text and not state.json:
            piece = self._read_text(stream, state, start)
            if piece is None:
                return None
        else:
            piece = self._engine.read(stream, start, min(self._chunk_bytes, CATCH_UP_BYTES))
        data = sse.data_event(piece.parts, piece.end, json=state.json, text=text)
        made = DataEvent(piece.end, Frame(data))
        if piece.end.byte - start.byte > self._chunk_bytes:
            self._large = (key, made)
            if self._large_timer is not None:
                self._large_timer.cancel()
            self._large_timer = self._loop.call_later(_LARGE_KEPT_S, self._forget_large)
        return made

    def _forget_large(self) -> None:
        self._large = self._large_timer = None

    def _read_text(self, stream: StreamEntry, state: StreamState, start: Offset) -> Slice | None:
        """Messages from an offset on that end between two characters; None if not yet."""
        bytes_max = min(self._chunk_bytes, CATCH_UP_BYTES)
        while True:
            piece = self._engine.read(stream, start, bytes_max)
            count = whole_prefix(piece.parts)
            if count == len(piece.parts):
                return piece
            if piece.end.message - start.message != len(piece.parts):
                # Not one message per part: it is not known where they end.
                raise NotText
            if count:
                parts = piece.parts[:count]
                size = sum(map(len, parts))
                return Slice(start, Offset(start.message + count, start.byte + size), parts, [])
            if piece.end == state.tail:
                if state.closed:
                    raise NotText
                return None
            bytes_max = 2 * max(bytes_max, piece.end.byte - start.byte)
            if bytes_max > JOINED_BYTES_MAX:
                raise NotText
