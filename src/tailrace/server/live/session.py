"""An SSE session (§5.8)."""

import asyncio
import random
from typing import TYPE_CHECKING, Final

from tailrace.engine.entry import StreamEntry
from tailrace.protocol.errors import Refusal
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState
from tailrace.server.live import sse
from tailrace.server.live.event_maker import TEXT_WAIT_S, DataEvent
from tailrace.server.live.whole_text import NotText
from tailrace.server.message import Frame, Request, Sink

if TYPE_CHECKING:
    from tailrace.server.live.live import Live

__all__ = ["SseSession"]

HEARTBEAT_S: Final = 15.0
# uvloop's clock may be behind: a client that reconnects must not find that the time has not passed.
_TEXT_WAIT_MARGIN_S: Final = 0.1
# Readers that connected together must not all reconnect together.
_RECYCLE_JITTER: Final = 0.1
_JOINED_BYTES_MAX: Final = 32 << 10
_HEARTBEAT: Final = Frame(sse.HEARTBEAT)


class SseSession:
    """
    One SSE reader; everything before `position` has been sent to it, as text or in base64.

    At the tail, `advance` sends it the frame of each commit. Behind the tail, `pump` reads from
    storage whenever the sink has room.
    """

    endless = True

    def __init__(
        self,
        live: "Live",
        request: Request,
        stream: StreamEntry,
        start: Offset,
        cursor: int,
        *,
        text: bool,
        first: DataEvent | None = None,
    ) -> None:
        self.request = request
        self.client = live.guard.client(request)
        self.position = start
        self.cursor = cursor
        self.text = text
        # The first event, if it was made to find out whether it is text.
        self._first = first
        self._live = live
        self._stream = stream
        state = stream.durable
        assert state is not None
        # A stream that is deleted and created again under the same name is another one.
        self._stream_id = state.id
        self._sink: Sink | None = None
        self._done = False
        # Ended before it started: its credentials were revoked while its headers were sent.
        self._ended = False
        self._pumping: asyncio.Handle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._silent = True
        # Runs while the messages at `position` end inside a character.
        self._text_wait: asyncio.TimerHandle | None = None
        # Now, not in `start`: a commit in between must not be missed.
        live.join(stream, self)

    # -- the transport's side ----------------------------------------------------------------

    def start(self, sink: Sink) -> None:
        self._sink = sink
        if self._ended:
            self.end()
            return
        loop = self._live.loop
        recycle_s = self._live.sse_s * (1 + random.uniform(-_RECYCLE_JITTER, _RECYCLE_JITTER))
        self._timers = [
            loop.call_later(self._live.wait_s_max(self.request, recycle_s), self.end),
            loop.call_later(HEARTBEAT_S, self._beat),
        ]
        state = self._stream.readable
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
        self._stop_waiting()
        if self._pumping is not None:
            self._pumping.cancel()
        self._live.leave(self._stream, self)

    # -- the stream's side -------------------------------------------------------------------

    def advance(self, before: Offset, after: StreamState, frame: Frame) -> None:
        """Send the frame of a commit, if it follows what was sent."""
        sink = self._sink
        if sink is None or sink.blocked:
            return
        if self.position != before:
            # Behind: `pump` reads it from storage, unless it is already on its way.
            if self._pumping is None:
                self.pump()
            return
        self.position = after.tail
        self._live.sent_bytes += len(frame.data)
        sink.write_frame(frame)
        if after.closed:
            self._finish()

    def pump(self) -> None:
        """Send what is between the position and the tail, one chunk per turn of the loop."""
        self._pumping = None
        sink = self._sink
        if self._done or sink is None or sink.blocked:
            return
        state = self._stream.readable
        if state is None or state.id != self._stream_id:
            self.deleted()
            return
        if self.position == state.tail:
            if state.closed:
                self._control(state)
                self._finish()
            return
        try:
            found = self._first or self._live.events.make(
                self._stream, self.position, text=self.text
            )
        except (Refusal, NotText):
            # No longer retained, or not text: the control event has the position of this reader.
            self.end()
            return
        except Exception as error:
            # The reader reconnects at its position, and gets the error then.
            self._live.report(error)
            self._finish()
            return
        self._first = None
        if found is None:
            self._wait_for_text(state)
            return
        self._stop_waiting()
        self.position, event = found
        if len(event.data) <= _JOINED_BYTES_MAX:
            # In one write, as for commits: some clients expect both events in one chunk.
            self._control(state, event.data)
        else:
            self._live.sent_bytes += len(event.data)
            sink.write_frame(event)
            self._control(state)
        if self.position == state.tail and state.closed:
            self._finish()
        elif self.position != state.tail:
            self._pumping = self._live.loop.call_soon(self.pump)

    def _wait_for_text(self, state: StreamState) -> None:
        """The messages at the position end inside a character: wait for the next append."""
        if self._text_wait is None:
            if self._silent:
                # The client learns that it is connected.
                self._control(state)
            wait_s = TEXT_WAIT_S + _TEXT_WAIT_MARGIN_S
            self._text_wait = self._live.loop.call_later(wait_s, self.end)

    def _stop_waiting(self) -> None:
        if self._text_wait is not None:
            self._text_wait.cancel()
            self._text_wait = None

    def deleted(self) -> None:
        if not self._done and self._sink is not None:
            self._sink.write_frame(Frame(sse.deleted_event(self.position)))
            self._finish()

    def end(self) -> None:
        """§8.2: about every minute, and when the server stops: send a last control event."""
        state = self._stream.readable
        if self._sink is None:
            self._ended = True
            return
        if self._done:
            return
        if state is None or state.id != self._stream_id:
            self.deleted()
            return
        self._control(state)
        self._finish()

    def _beat(self) -> None:
        """Send a comment, which keeps proxies from closing an idle connection."""
        if self._sink is not None and not self._sink.blocked:
            self._sink.write_frame(_HEARTBEAT)
        self._timers[1] = self._live.loop.call_later(HEARTBEAT_S, self._beat)

    def _control(self, state: StreamState, data: bytes | memoryview = b"") -> None:
        assert self._sink is not None
        self._silent = False
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
