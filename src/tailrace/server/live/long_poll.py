"""A long-poll: one request that waits for data (§5.7)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.engine.entry import StreamEntry
from tailrace.engine.read import Slice
from tailrace.protocol.errors import Refusal, StreamNotFound
from tailrace.protocol.offset import Offset
from tailrace.server.compress import negotiate
from tailrace.server.errors import Internal
from tailrace.server.message import Request, Response
from tailrace.server.problem import problem

if TYPE_CHECKING:
    from tailrace.server.live.live import Live

__all__ = ["LongPoll"]


class LongPoll:
    endless = True

    def __init__(
        self,
        live: "Live",
        request: Request,
        stream: StreamEntry,
        start: Offset,
        client_cursor: int | None,
        reply: Callable[[Response], None],
        *,
        shared: bool,
    ) -> None:
        self._live = live
        self.request = request
        self.client = live.guard.client(request)
        self._stream = stream
        self._start = start
        self._client_cursor = client_cursor
        self._reply = reply
        self._shared = shared
        live.join(stream, self)
        self._timer = live.loop.call_later(live.wait_s_max(request, live.long_poll_s), self.end)

    def cancel(self) -> None:
        self._timer.cancel()
        self._live.leave(self._stream, self)

    def wake(self, pieces: dict[Offset, Slice]) -> None:
        """Respond with what is there now: data, closure, both, or nothing new."""
        self.cancel()
        state = self._stream.durable
        assert state is not None
        # Of the interval in which the response is sent, not of the one in which the wait began.
        cursor = self._live.cursor(self._client_cursor)
        if state.tail == self._start:
            self._reply(self._live.reads.nothing_new(state, cursor))
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
            self.request, self._stream, piece, coding, self._reply, cursor,
            shared=self._shared,
        )  # fmt: skip

    def refuse(self, refusal: Refusal) -> None:
        self.cancel()
        self._reply(problem(refusal))

    def end(self) -> None:
        """The timeout has passed, or the server stops."""
        if self._stream.readable is None:
            self.refuse(StreamNotFound())
        else:
            self.wake({})
