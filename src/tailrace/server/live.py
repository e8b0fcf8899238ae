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
from collections.abc import Callable
from typing import Final

from tailrace.engine.core import Committed, Engine
from tailrace.engine.read import Slice
from tailrace.engine.stream import Stream
from tailrace.protocol.content_type import is_text
from tailrace.protocol.cursor import JITTER_S_MAX, JITTER_S_MIN, current_cursor, next_cursor
from tailrace.protocol.errors import Refusal, StreamNotFound
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState
from tailrace.server import headers as h
from tailrace.server import sse
from tailrace.server.access import Principal
from tailrace.server.compress import negotiate
from tailrace.server.doors import Doors
from tailrace.server.errors import Internal
from tailrace.server.message import Frame, Request, Response, Sink, Waiting
from tailrace.server.problem import problem
from tailrace.server.reads import Reads, Where

__all__ = ["Live"]

HEARTBEAT_S: Final = 15.0
# Readers that connected together must not all come back together.
_RECYCLE_JITTER: Final = 0.1
_LARGE_KEPT_S: Final = 5.0
_JOINED_BYTES_MAX: Final = 32 << 10
CATCH_UP_BYTES: Final = 128 << 10
"""An event of what was missed has about this much, and a reader that never reads holds one."""
_HEARTBEAT: Final = Frame(sse.HEARTBEAT)


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
        reads: Reads,
        doors: Doors,
        *,
        clock: Callable[[], int],
        chunk_bytes: int,
        long_poll_s: float,
        sse_s: float,
    ) -> None:
        self.engine = engine
        self.reads = reads
        self.doors = doors
        self._limits = doors.limits
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
            self.reads.answer(request, stream, where, reply, cursor)
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
        headers = [(h.CONTENT_TYPE, b"text/event-stream"), (h.CACHE_CONTROL, b"no-cache")]
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
        return max(0.0, min(seconds, (principal.expires_at - self._clock()) / 1000))

    def review(self, is_valid: Callable[[Principal], bool]) -> None:
        """End whoever waits with credentials that are not good any more."""
        for reader in list(self._waiting):
            principal = reader.request.principal
            if principal is not None and not is_valid(principal):
                reader.end()

    def join(self, stream: Stream, reader: "LongPoll | SseSession") -> None:
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

    def leave(self, stream: Stream, reader: "LongPoll | SseSession") -> None:
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
        sessions: "list[SseSession]",
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


class LongPoll:
    """One request that waits for data."""

    endless = True

    def __init__(
        self,
        live: Live,
        request: Request,
        stream: Stream,
        start: Offset,
        cursor: int,
        reply: Callable[[Response], None],
        *,
        shared: bool,
    ) -> None:
        self._live = live
        self.request = request
        self.client = live.doors.client(request)
        self._stream = stream
        self._start = start
        self._cursor = cursor
        self._reply = reply
        self._shared = shared
        live.join(stream, self)
        self._timer = live.loop.call_later(live.rest_s(request, live.long_poll_s), self.end)

    def cancel(self) -> None:
        self._timer.cancel()
        self._live.leave(self._stream, self)

    def wake(self, pieces: dict[Offset, Slice]) -> None:
        """Something was committed: data, closure, or both."""
        self.cancel()
        state = self._stream.durable
        assert state is not None
        if state.tail == self._start:
            self._reply(self._live.reads.nothing_new(state, self._cursor))
            return
        piece = pieces.get(self._start)
        if piece is None:
            try:
                piece = self._live.engine.read(self._stream, self._start, self._live.chunk_bytes)
            except Refusal as refusal:
                self._reply(problem(refusal))
                return
            except Exception as error:
                self._live.report(error)
                self._reply(problem(Internal()))
                return
            pieces[self._start] = piece
        coding = negotiate(self.request.headers.get(b"accept-encoding", b""))
        self._live.reads.reply_slice(
            self.request, self._stream, piece, coding, self._reply, self._cursor,
            shared=self._shared,
        )  # fmt: skip

    def refuse(self, refusal: Refusal) -> None:
        self.cancel()
        self._reply(problem(refusal))

    def end(self) -> None:
        """Time is up, or the server stops."""
        self.cancel()
        state = self._stream.durable
        if state is None:
            self._reply(problem(StreamNotFound()))
        elif state.tail != self._start:
            # It was not woken: the answer must not skip what it has not seen.
            self.wake({})
        else:
            self._reply(self._live.reads.nothing_new(state, self._cursor))


class SseSession:
    """
    One SSE reader: `position` is all that it has been sent.

    It is either at the tail, and then `advance` gives it each commit's frame, or behind, and then
    `pump` reads on from storage whenever the sink has room.
    """

    endless = True

    def __init__(
        self, live: Live, request: Request, stream: Stream, start: Offset, cursor: int
    ) -> None:
        self.request = request
        self.client = live.doors.client(request)
        self.position = start
        self.cursor = cursor
        self._live = live
        self._stream = stream
        state = stream.durable
        assert state is not None
        # Deleted and created again under the same name is another stream.
        self._stream_id = state.id
        self._sink: Sink | None = None
        self._done = False
        self._pumping: asyncio.Handle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        # From now on, not from `start`: a stream that nobody waits for may leave memory.
        live.join(stream, self)

    # -- the transport's side ----------------------------------------------------------------

    def start(self, sink: Sink) -> None:
        self._sink = sink
        loop = self._live.loop
        recycle_s = self._live.sse_s * (1 + random.uniform(-_RECYCLE_JITTER, _RECYCLE_JITTER))
        self._timers = [
            loop.call_later(self._live.rest_s(self.request, recycle_s), self.end),
            loop.call_later(HEARTBEAT_S, self._beat),
        ]
        state = self._stream.durable
        if state is not None and state.id == self._stream_id and self.position == state.tail:
            # §5.8, §6: at the tail the first event is a control event.
            self._control(state)
            if state.closed:
                self._finish()
                return
        self.pump()
        if self._live.draining:
            self.end()

    def drained(self) -> None:
        self.pump()

    def cancel(self) -> None:
        self._done = True
        for timer in self._timers:
            timer.cancel()
        if self._pumping is not None:
            self._pumping.cancel()
        self._live.leave(self._stream, self)

    # -- the stream's side -------------------------------------------------------------------

    def advance(self, before: Offset, after: StreamState, frame: Frame) -> None:
        """A commit, encoded for all: take it if it is what comes next."""
        sink = self._sink
        if sink is None or sink.blocked or self.position != before:
            # Behind: `pump` reads it from storage when it gets there.
            return
        self.position = after.tail
        self._live.sent_bytes += len(frame.data)
        sink.write_frame(frame)
        if after.closed:
            self._finish()

    def pump(self) -> None:
        """Send what lies between the position and the tail, one chunk a turn of the loop."""
        self._pumping = None
        sink = self._sink
        if self._done or sink is None or sink.blocked:
            return
        state = self._stream.durable
        if state is None or state.id != self._stream_id:
            self.deleted()
            return
        if self.position == state.tail:
            if state.closed:
                self._control(state)
                self._finish()
            return
        try:
            self.position, event = self._live.event(self._stream, self.position)
        except Refusal:
            # Retention has passed it by: the control event tells where it was.
            self.end()
            return
        except Exception as error:
            # The reader comes back to where it was, and is told what is wrong then.
            self._live.report(error)
            self._finish()
            return
        if len(event.data) <= _JOINED_BYTES_MAX:
            # In one piece, as commits come: whoever looks at pieces finds both events in one.
            self._control(state, event.data)
        else:
            self._live.sent_bytes += len(event.data)
            sink.write_frame(event)
            self._control(state)
        if self.position == state.tail and state.closed:
            self._finish()
        elif self.position != state.tail:
            self._pumping = self._live.loop.call_soon(self.pump)

    def deleted(self) -> None:
        if not self._done and self._sink is not None:
            self._sink.write_frame(Frame(sse.deleted_event(self.position)))
            self._finish()

    def end(self) -> None:
        """§8.2: about every minute, and when the server stops: a last control event."""
        state = self._stream.durable
        if self._done or self._sink is None:
            return
        if state is None or state.id != self._stream_id:
            self.deleted()
            return
        self._control(state)
        self._finish()

    def _beat(self) -> None:
        """A comment now and then keeps proxies from closing a quiet connection."""
        if self._sink is not None and not self._sink.blocked:
            self._sink.write_frame(_HEARTBEAT)
        self._live.engine.touch(self._stream)
        self._timers[1] = self._live.loop.call_later(HEARTBEAT_S, self._beat)

    def _control(self, state: StreamState, data: bytes | memoryview = b"") -> None:
        assert self._sink is not None
        self.cursor = max(self.cursor, self._live.current_cursor())
        up_to_date = self.position == state.tail
        closed = up_to_date and state.closed
        control = sse.control_event(
            self.position, cursor=self.cursor, up_to_date=up_to_date, closed=closed
        )
        frame = Frame(b"".join((data, control)))
        self._live.sent_bytes += len(frame.data)
        self._sink.write_frame(frame)

    def _finish(self) -> None:
        sink = self._sink
        self.cancel()
        if sink is not None:
            sink.finish()
