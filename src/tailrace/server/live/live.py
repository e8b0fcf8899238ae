"""
Reads that wait: long-poll and SSE (§5.7, §5.8).

Rule 1: a reader sees durable states only, and in one piece: bytes that were appended together with
the closure are delivered before the closure is.

Rule 2: no reader costs memory that grows. A commit is encoded once and the same bytes are written
to every SSE reader that stands at the tail. One that is slow, or late, is moved to catching up: it
holds only an offset, and reads from storage when its connection drains.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from tailrace.engine.core import Committed, Engine
from tailrace.engine.read import Slice
from tailrace.engine.stream import Stream
from tailrace.protocol.content_type import is_text
from tailrace.protocol.cursor import JITTER_S_MAX, JITTER_S_MIN, current_cursor, next_cursor
from tailrace.protocol.errors import StreamNotFound
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState
from tailrace.server import headers as h
from tailrace.server.guard.access import Principal
from tailrace.server.guard.guard import Guard
from tailrace.server.handlers.reads import ReadHandlers, Where
from tailrace.server.live import sse
from tailrace.server.live.long_poll import LongPoll
from tailrace.server.live.session import SseSession
from tailrace.server.message import Frame, Request, Response, Waiting

__all__ = ["Live"]

_LARGE_KEPT_S: Final = 5.0
_EXPIRY_MARGIN_S: Final = 0.003
CATCH_UP_BYTES: Final = 128 << 10
"""An event of what was missed has about this much, and a reader that never reads holds one."""


class _Readers:
    """Who waits for one stream's next commit."""

    __slots__ = ("polls", "sessions")

    def __init__(self) -> None:
        # Dicts, for their order: the first to wait is the first to be told.
        self.polls: dict[LongPoll, None] = {}
        self.sessions: dict[SseSession, None] = {}


class Live:
    """All waiting readers; the engine's listener."""

    def __init__(
        self,
        engine: Engine,
        reads: ReadHandlers,
        guard: Guard,
        *,
        clock: Callable[[], int],
        chunk_bytes: int,
        long_poll_s: float,
        sse_s: float,
    ) -> None:
        self.engine = engine
        self.reads = reads
        self.guard = guard
        self._limits = guard.limits
        self.chunk_bytes = chunk_bytes
        self.long_poll_s = long_poll_s
        self.sse_s = sse_s
        self.draining = False
        self.loop = asyncio.get_running_loop()
        self._clock = clock
        self._waiting: dict[LongPoll | SseSession, None] = {}
        self.sent_bytes = 0
        """Of events, to all SSE readers so far."""
        # The last event that was larger than a chunk: all readers of it share its bytes.
        self._large: tuple[int, Offset, Offset, Frame] | None = None
        self._large_timer: asyncio.TimerHandle | None = None
        engine.commit.listener = self

    def cursor(self, client: int | None) -> int:
        jitter_s = random.randint(JITTER_S_MIN, JITTER_S_MAX)
        return next_cursor(client, self._clock(), jitter_s)

    def current_cursor(self) -> int:
        return current_cursor(self._clock())

    # -- requests ----------------------------------------------------------------------------

    def long_poll(
        self,
        request: Request,
        stream: Stream,
        where: Where,
        client_cursor: int | None,
        reply: Callable[[Response], None],
    ) -> Waiting | None:
        """§5.7: answer at once if there is something to say, else wait."""
        state = stream.durable
        assert state is not None
        where.check(state)
        cursor = self.cursor(client_cursor)
        start = state.tail if where.offset is None else where.offset
        if start != state.tail:
            self.reads.catch_up(request, stream, where, reply, cursor)
            return None
        if state.closed or self.draining:
            reply(self.reads.nothing_new(state, cursor))
            return None
        return LongPoll(
            self, request, stream, start, cursor, reply, shared=where.offset is not None
        )

    def sse(
        self, request: Request, stream: Stream, where: Where, client_cursor: int | None
    ) -> Response:
        """§5.8: the head of an event stream; its body is a session."""
        state = stream.durable
        assert state is not None
        where.check(state)
        caching = h.caching(b"no-cache", shared=self.guard.access is None)
        headers = [(h.CONTENT_TYPE, b"text/event-stream"), caching]
        if not is_text(state.content_type):
            headers.append((h.STREAM_SSE_DATA_ENCODING, b"base64"))
        if where.offset is None:
            start = state.tail
            if state.closed:
                # §6: at the tail of a closed stream the headers say so too.
                headers.append((h.STREAM_NEXT_OFFSET, start.encoded()))
                headers.append((h.STREAM_UP_TO_DATE, h.TRUE))
                headers.append((h.STREAM_CLOSED, h.TRUE))
        else:
            start = where.offset
            self.engine.locate(stream, start)
        session = SseSession(self, request, stream, start, self.cursor(client_cursor))
        return Response(200, headers, live=session)

    def event(self, stream: Stream, start: Offset) -> tuple[Offset, Frame]:
        """
        The `data` event of what follows an offset, and where it ends.

        Raises:
            Refusal: The offset is no longer retained.
        """
        state = stream.durable
        assert state is not None
        large = self._large
        if large is not None and large[:2] == (state.id, start):
            return large[2], large[3]
        piece = self.engine.read(stream, start, min(self.chunk_bytes, CATCH_UP_BYTES))
        text = is_text(state.content_type)
        frame = Frame(sse.data_event(piece.parts, json=state.json, text=text))
        if piece.end.byte - start.byte > self.chunk_bytes:
            self._large = (state.id, start, piece.end, frame)
            if self._large_timer is not None:
                self._large_timer.cancel()
            self._large_timer = self.loop.call_later(_LARGE_KEPT_S, self._forget_large)
        return piece.end, frame

    def _forget_large(self) -> None:
        self._large = self._large_timer = None

    def report(self, error: Exception) -> None:
        """One reader's trouble: for the log, and for nobody else who waits."""
        self.loop.call_exception_handler({"message": "a live read failed", "exception": error})

    # -- who waits ---------------------------------------------------------------------------

    def rest_s(self, request: Request, seconds: float) -> float:
        """How long a reader may wait: so long, and not beyond its credentials."""
        principal = request.principal
        if principal is None or principal.expires_at is None:
            return seconds
        left_s = (principal.expires_at - self._clock()) / 1000
        # Never a moment early, or who comes again would be let in: uvloop's clock stands still
        # within a turn, and counts milliseconds.
        behind_s = time.monotonic() - self.loop.time()
        return max(0.0, min(seconds, left_s + behind_s + _EXPIRY_MARGIN_S))

    def review(self, is_valid: Callable[[Principal], bool]) -> None:
        """End whoever waits with credentials that are not good any more."""
        for reader in list(self._waiting):
            principal = reader.request.principal
            if principal is not None and not is_valid(principal):
                reader.end()

    def join(self, stream: Stream, reader: LongPoll | SseSession) -> None:
        """
        Wait for a stream's commits.

        Raises:
            TooManyWaiters: There are too many already, or too many of this client.
        """
        self._limits.join(reader.client)
        if stream.live is None:
            stream.live = _Readers()
        readers = stream.live.polls if isinstance(reader, LongPoll) else stream.live.sessions
        readers[reader] = None
        self._waiting[reader] = None

    def leave(self, stream: Stream, reader: LongPoll | SseSession) -> None:
        if reader not in self._waiting:
            return
        del self._waiting[reader]
        self._limits.leave(reader.client)
        readers: _Readers | None = stream.live
        if readers is None:
            return
        if isinstance(reader, LongPoll):
            readers.polls.pop(reader, None)
        else:
            readers.sessions.pop(reader, None)
        if not readers.polls and not readers.sessions:
            stream.live = None

    def count(self) -> tuple[int, int]:
        """How many long-polls wait, and how many SSE sessions there are."""
        kinds = list(map(type, self._waiting))
        return kinds.count(LongPoll), kinds.count(SseSession)

    def drain(self) -> None:
        """The server stops: every waiting reader gets its last word."""
        self.draining = True
        for reader in list(self._waiting):
            reader.end()

    # -- commits -----------------------------------------------------------------------------

    def committed(self, change: Committed) -> None:
        readers: _Readers = change.stream.live
        if change.deleted:
            for poll in list(readers.polls):
                poll.refuse(StreamNotFound())
            for session in list(readers.sessions):
                session.deleted()
            return
        before, after = change.before, change.after
        if before is None or after is None or (before.tail == after.tail and not after.closed):
            return
        # Whoever waits at the same offset gets the same slice, read once.
        pieces: dict[Offset, Slice] = {}
        for poll in list(readers.polls):
            poll.wake(pieces)
        if readers.sessions:
            self._broadcast(change, before, after, list(readers.sessions))

    def _broadcast(
        self,
        change: Committed,
        before: StreamState,
        after: StreamState,
        sessions: list[SseSession],
    ) -> None:
        event = b""
        if before.tail != after.tail:
            if after.tail.byte - before.tail.byte > self.chunk_bytes:
                # Too much for one event: everyone reads it from storage, piece by piece.
                for session in sessions:
                    session.pump()
                return
            parts = [record.payload for record in change.records]
            text = is_text(after.content_type)
            event = sse.data_event(parts, json=after.json, text=text)
        frames: dict[int, Frame] = {}
        current = self.current_cursor()
        for session in sessions:
            cursor = session.cursor = max(session.cursor, current)
            frame = frames.get(cursor)
            if frame is None:
                control = sse.control_event(
                    after.tail, cursor=cursor, up_to_date=True, closed=after.closed
                )
                frame = frames[cursor] = Frame(event + control)
            session.advance(before.tail, after, frame)
