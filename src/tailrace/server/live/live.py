"""
Reads that wait: long-poll and SSE (§5.7, §5.8).

Rule 1: a reader sees durable states only, and in one piece: bytes that were appended together with
the closure are delivered before the closure is.

Rule 2: the memory of a reader is bounded. A commit is encoded once, and the same bytes are written
to every SSE reader at the tail. A reader that is slow, or late, catches up: it holds only an
offset, and reads from storage when its connection drains.

Rule 3: what is written as text is whole characters. Messages that end inside a character wait for
the next one. If that does not come, or a byte is not UTF-8, the session ends, and its client
reconnects at the same offset to a session in base64.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from tailrace.engine.engine import Engine, StreamChange
from tailrace.engine.entry import StreamEntry
from tailrace.engine.read import Slice
from tailrace.protocol.content_type import is_utf8_text
from tailrace.protocol.cursor import JITTER_S_MAX, JITTER_S_MIN, current_cursor, next_cursor
from tailrace.protocol.errors import StreamNotFound, StreamSoftDeleted
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState
from tailrace.server import headers as h
from tailrace.server.guard.access import Principal
from tailrace.server.guard.guard import Guard
from tailrace.server.handlers.reads import ReadHandlers, ReadStart
from tailrace.server.live import sse
from tailrace.server.live.event_maker import DataEvent, EventMaker
from tailrace.server.live.long_poll import LongPoll
from tailrace.server.live.session import SseSession
from tailrace.server.live.whole_text import is_whole
from tailrace.server.message import Frame, Request, Response, Waiting

__all__ = ["Live"]

_EXPIRY_MARGIN_S: Final = 0.003
_KEEP_ALIVE_S: Final = 15.0


class _StreamReaders:
    """The readers that wait for one stream; its listener."""

    __slots__ = ("_live", "_timer", "polls", "sessions")

    def __init__(self, live: "Live") -> None:
        self._live = live
        # Dicts keep their order: readers are served in the order in which they came.
        self.polls: dict[LongPoll, None] = {}
        self.sessions: dict[SseSession, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def keep_alive(self, stream: StreamEntry) -> None:
        """An open SSE reader is reading: a sliding TTL does not end while it is."""
        state = stream.durable
        if self.sessions and state is not None and state.ttl_s is not None:
            self._live.engine.touch(stream)
            interval_s = min(_KEEP_ALIVE_S, state.ttl_s / 3)
            self._timer = self._live.loop.call_later(interval_s, self.keep_alive, stream)
        else:
            self._timer = None

    def join(self, stream: StreamEntry, session: SseSession) -> None:
        self.sessions[session] = None
        if self._timer is None and self._live.engine.sliding:
            self.keep_alive(stream)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def committed(self, change: StreamChange) -> None:
        if change.deleted:
            is_soft = change.after is not None and change.after.deleted
            for poll in list(self.polls):
                poll.refuse(StreamSoftDeleted() if is_soft else StreamNotFound())
            for session in list(self.sessions):
                session.deleted()
            return
        before, after = change.before, change.after
        if before is None or after is None or (before.tail == after.tail and not after.closed):
            return
        # Readers that wait at the same offset get the same slice, read once.
        pieces: dict[Offset, Slice] = {}
        for poll in list(self.polls):
            poll.wake(pieces)
        if self.sessions:
            self._live.broadcast(change, before, after, list(self.sessions))


class Live:
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
        self._waiting: dict[LongPoll | SseSession, _StreamReaders] = {}
        self.sent_bytes = 0
        """Bytes of events sent to SSE readers so far."""
        self.events = EventMaker(engine, clock, chunk_bytes)

    def cursor(self, client: int | None) -> int:
        jitter_s = random.randint(JITTER_S_MIN, JITTER_S_MAX)
        return next_cursor(client, self._clock(), jitter_s)

    def current_cursor(self) -> int:
        return current_cursor(self._clock())

    # -- requests ----------------------------------------------------------------------------

    def long_poll(
        self,
        request: Request,
        stream: StreamEntry,
        position: ReadStart,
        client_cursor: int | None,
        reply: Callable[[Response], None],
    ) -> Waiting | None:
        """§5.7: respond at once if there is data or closure, otherwise wait."""
        state = stream.durable
        assert state is not None
        position.check(state)
        start = state.tail if position.offset is None else position.offset
        if start != state.tail:
            self.reads.catch_up(request, stream, position, reply, self.cursor(client_cursor))
            return None
        if state.closed or self.draining:
            reply(self.reads.nothing_new(state, self.cursor(client_cursor)))
            return None
        return LongPoll(
            self, request, stream, start, client_cursor, reply, shared=position.offset is not None
        )

    def sse(
        self,
        request: Request,
        stream: StreamEntry,
        position: ReadStart,
        client_cursor: int | None,
    ) -> Response:
        """§5.8: the headers of an event stream; its body is a session."""
        state = stream.durable
        assert state is not None
        position.check(state)
        caching = h.caching(b"no-cache", shared=self.guard.access is None)
        headers = [(h.CONTENT_TYPE, b"text/event-stream"), caching, h.UNBUFFERED]
        text = is_utf8_text(state.content_type)
        first: DataEvent | None = None
        if position.offset is None:
            start = state.tail
            if state.closed:
                # §6: at the tail of a closed stream the headers say so too.
                headers.append((h.STREAM_NEXT_OFFSET, start.encoded()))
                headers.append((h.STREAM_UP_TO_DATE, h.TRUE))
                headers.append((h.STREAM_CLOSED, h.TRUE))
        else:
            start = position.offset
            self.engine.locate(stream, start)
            if text and not state.json and start != state.tail:
                text, first = self.events.begin_text(stream, start)
        if not text:
            headers.append((h.STREAM_SSE_DATA_ENCODING, b"base64"))
        cursor = self.cursor(client_cursor)
        session = SseSession(self, request, stream, start, cursor, text=text, first=first)
        return Response(200, headers, live=session)

    def report(self, error: Exception) -> None:
        """Log the failure of one reader. Other readers are not affected."""
        self.loop.call_exception_handler({"message": "a live read failed", "exception": error})

    # -- waiting readers ---------------------------------------------------------------------

    def wait_s_max(self, request: Request, seconds: float) -> float:
        """How long a reader may wait: at most this long, and not beyond its credentials."""
        principal = request.principal
        if principal is None or principal.expires_at is None:
            return seconds
        left_s = (principal.expires_at - self._clock()) / 1000
        # Never early, or a reader that reconnects would be accepted again: uvloop's clock does not
        # advance within a turn, and counts milliseconds.
        behind_s = time.monotonic() - self.loop.time()
        return max(0.0, min(seconds, left_s + behind_s + _EXPIRY_MARGIN_S))

    def review(self, is_valid: Callable[[Principal], bool]) -> None:
        """End the readers whose credentials are no longer valid."""
        for reader in list(self._waiting):
            principal = reader.request.principal
            if principal is not None and not is_valid(principal):
                reader.end()

    def join(self, stream: StreamEntry, reader: LongPoll | SseSession) -> None:
        """
        Wait for a stream's commits.

        Raises:
            TooManyWaiters: There are too many already, or too many of this client.
        """
        self._limits.join(reader.client)
        readers = stream.listener
        if not isinstance(readers, _StreamReaders):
            readers = stream.listener = _StreamReaders(self)
        if isinstance(reader, LongPoll):
            readers.polls[reader] = None
        else:
            readers.join(stream, reader)
        self._waiting[reader] = readers

    def leave(self, stream: StreamEntry, reader: LongPoll | SseSession) -> None:
        readers = self._waiting.pop(reader, None)
        if readers is None:
            return
        self._limits.leave(reader.client)
        if isinstance(reader, LongPoll):
            readers.polls.pop(reader, None)
        else:
            readers.sessions.pop(reader, None)
            if not readers.sessions:
                readers.stop()
        if not readers.polls and not readers.sessions:
            stream.listener = None

    def count(self) -> tuple[int, int]:
        """The number of waiting long-polls, and of SSE sessions."""
        kinds = list(map(type, self._waiting))
        return kinds.count(LongPoll), kinds.count(SseSession)

    def drain(self) -> None:
        """The server stops: every waiting reader gets its last response."""
        self.draining = True
        for reader in list(self._waiting):
            reader.end()

    def broadcast(
        self,
        change: StreamChange,
        before: StreamState,
        after: StreamState,
        sessions: list[SseSession],
    ) -> None:
        """Send a commit to sessions; the event is encoded once."""
        parts = [record.payload for record in change.records]
        if before.tail != after.tail and (
            after.tail.byte - before.tail.byte > self.chunk_bytes
            or (is_utf8_text(after.content_type) and not after.json and not is_whole(parts))
        ):
            # Too much for one event, or a part of a character: sessions read it from storage.
            with self.events.sharing():
                for session in sessions:
                    session.pump()
            return
        events: dict[bool, bytes] = {}
        frames: dict[tuple[int, bool], Frame] = {}
        current = self.current_cursor()
        for session in sessions:
            cursor = session.cursor = max(session.cursor, current)
            text = session.text
            frame = frames.get((cursor, text))
            if frame is None:
                event = events.get(text, b"")
                if not event and before.tail != after.tail:
                    event = sse.data_event(parts, after.tail, json=after.json, text=text)
                    events[text] = event
                control = sse.control_event(
                    after.tail, cursor=cursor, up_to_date=True, closed=after.closed
                )
                frame = frames[cursor, text] = Frame(event + control)
            session.advance(before.tail, after, frame)
