"""
One connection: passes the requests of `reader` to the service, and writes the responses.

Rule 1: one request at a time. Pipelined requests wait, already parsed, and nothing more is read
until they are served; responses come in the order of requests.

Rule 2: each phase of a request has a deadline, and nothing more is written to a client that does
not read.

Rule 3: after a refusal that leaves the rest of the request unread, the connection is closed. What
still arrives is dropped for a moment first, so that the client can read the response.

No task and no future per request: an append completes by callback.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from tailrace.protocol.errors import Refusal
from tailrace.server.errors import RequestTimeout, TooManyConnections
from tailrace.server.message import WRITE_STALL_S, BodySink, Frame, LiveBody, Response, Waiting
from tailrace.server.problem import problem
from tailrace.server.transports.wire.encode import CONTINUE, LAST_CHUNK, encode_head
from tailrace.server.transports.wire.reader import ParsedRequest, RequestReader

if TYPE_CHECKING:
    from tailrace.server.transports.wire.server import WireServer

__all__ = ["Connection"]

REQUEST_HEAD_S: Final = 15.0
REQUEST_BODY_IDLE_S: Final = 30.0
KEEP_ALIVE_S: Final = 75.0
LINGER_S: Final = 1.0
WRITE_BUFFER_BYTES_HIGH: Final = 256 << 10
_FRAME_BYTES_LARGE: Final = 64 << 10


class Connection(RequestReader, asyncio.Protocol):
    """An HTTP/1.1 connection; also the sink of a live response."""

    def __init__(self, server: "WireServer") -> None:
        super().__init__(server)
        self._service = server.service
        self._transport: asyncio.Transport | None = None
        self.address = ""
        self._admitted = False
        self._queue: deque[ParsedRequest] = deque()
        self._current: ParsedRequest | None = None
        self._waiting: Waiting | None = None
        self._live: LiveBody | None = None
        self._chunked = False
        self.blocked = False
        # Bytes that the client has not yet read, and since when they have not decreased.
        self._unsent = 0
        self._unsent_since = server.now
        self._closing = False
        self._eof = False
        self._reading = True
        # A client waits for `100 Continue`, behind a response that is not complete yet.
        self._continue_owed = False
        # Not reading, because the sink of a body is full.
        self._held = False

    # -- called by asyncio ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        made = cast(asyncio.Transport, transport)
        made.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_HIGH)
        self._transport = made
        peer = made.get_extra_info("peername")
        # With TLS it was admitted before its handshake.
        if not self._admitted and not self.admit(peer[0] if isinstance(peer, tuple) else ""):
            if self._server.may_linger(self):
                self._refuse(TooManyConnections())
            else:
                # Too many are being refused already: their sockets count as open files.
                made.abort()

    def admit(self, address: str) -> bool:
        """Count the connection; false if there are too many, or too many from its address."""
        self.address = address
        self._admitted = self._server.admit(self)
        return self._admitted

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closing = True
        self._drop_requests()
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._live is not None:
            self._live.cancel()
            self._live = None
        self._server.leave(self)

    def eof_received(self) -> bool:
        """A half-closed client still gets the response to its request, unless that is endless."""
        self._eof = True
        pending = self._waiting or self._live
        if pending is not None:
            return not pending.endless
        return self._current is not None or bool(self._queue)

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False
        if self._live is not None:
            self._live.drained()
        elif self._current is None:
            self._next()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self.feed(data)
        if self._sink is not None and self._sink.blocked and not self._held:
            self._held = True
            if self._transport is not None:
                self._transport.pause_reading()
        if self._refusal is not None and self._current is None and not self._queue:
            self._refuse(self._refusal)

    # -- called by the reader -------------------------------------------------------------------

    def arrived(self, parsed: ParsedRequest) -> None:
        if self._current is None and not self._queue and not self.blocked:
            self._serve(parsed)
            return
        self._queue.append(parsed)
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def begins(self, head: ParsedRequest) -> BodySink | None:
        head.address = self.address
        first = self._current is None and not self._queue
        sink = self._service.receive(head, first=first, large=self._is_large())
        if sink is not None:
            sink.drained = self._sink_drained
        return sink

    def _sink_drained(self) -> None:
        """The sink has space again: continue to read."""
        if self._held:
            self._held = False
            # The client could not send meanwhile, so it was not idle.
            self._since = self._server.now
            if self._reading and self._transport is not None and not self._closing:
                self._transport.resume_reading()

    def expects_continue(self) -> None:
        """Send `100 Continue`, but not within another response."""
        if self._transport is None or self._parser.get_http_version() == "1.0":
            return
        if self._current is None and not self._queue:
            self._transport.write(CONTINUE)
        else:
            self._continue_owed = True

    # -- requests and responses ----------------------------------------------------------------

    def _serve(self, parsed: ParsedRequest) -> None:
        self._current = parsed
        parsed.address = self.address
        waiting = self._service.handle(parsed, self._respond)
        if self._current is parsed and waiting is not None:
            self._waiting = waiting

    def _respond(self, response: Response) -> None:
        transport, parsed = self._transport, self._current
        if parsed is not None:
            self._service.metrics.count_response(parsed, response)
        if transport is None or parsed is None:
            if response.live is not None:
                response.live.cancel()
            return
        self._waiting = None
        close = parsed.close or self._server.draining or (self._eof and not self._queue)
        live = response.live
        chunked = False
        if live is not None and response.length is None:
            # HTTP/1.0 has no chunks: the end of the connection is the end of the body.
            chunked = not parsed.http_1_0
            close = close or parsed.http_1_0
        self._chunked = chunked
        parsed.close = close
        is_head = parsed.method == "HEAD"
        head = encode_head(
            response, head=is_head, close=close, chunked=chunked, http_1_0=parsed.http_1_0
        )
        if live is not None:
            self._live = live
            transport.write(head)
            live.start(self)
            return
        if not response.body or parsed.method == "HEAD":
            transport.write(head)
        elif len(response.body) < 4096:
            transport.write(head + response.body)
        else:
            transport.writelines((head, response.body))
        self._done()

    def write_frame(self, frame: Frame) -> None:
        if self._transport is None or self._current is None:
            return
        data = frame.data
        if not self._chunked:
            self._transport.write(data)
        elif len(data) < _FRAME_BYTES_LARGE:
            self._transport.write(frame.chunk)
        else:
            # Not copied: many readers may share the same bytes.
            self._transport.writelines((b"%x\r\n" % len(data), data, b"\r\n"))

    def finish(self) -> None:
        """The live response is complete."""
        if self._transport is None or self._current is None:
            return
        self._live = None
        if self._chunked:
            self._transport.write(LAST_CHUNK)
        self._current.close = self._current.close or self._server.draining
        self._done()

    def _done(self) -> None:
        parsed, self._current = self._current, None
        self._since = self._server.now
        if self._transport is None or parsed is None:
            return
        if parsed.close:
            self._close_gracefully()
        elif self._queue or self._refusal is not None or not self._reading or self._continue_owed:
            # Not from here: pipelined requests must not nest stack frames.
            self._server.loop.call_soon(self._next)

    def _next(self) -> None:
        """Serve the next pipelined request."""
        if self._transport is None or self._current is not None or self.blocked:
            return
        if self._queue:
            self._serve(self._queue.popleft())
        elif self._continue_owed and self._refusal is None:
            self._continue_owed = False
            self._transport.write(CONTINUE)
        elif self._refusal is not None and not self._closing:
            self._refuse(self._refusal)
        elif not self._reading and not self._closing:
            self._reading = True
            if not self._held:
                self._transport.resume_reading()

    def _drop_requests(self) -> None:
        """Nothing more is served: drop requests that have arrived, or are arriving."""
        if self._sink is not None:
            self._sink.cancel()
            self._sink = None
        for parsed in self._queue:
            if parsed.sink is not None:
                parsed.sink.cancel()
        self._queue.clear()

    def _refuse(self, refusal: Refusal) -> None:
        """Refuse a request that cannot be read to its end, then close."""
        transport = self._transport
        if transport is None:
            return
        self._refusal = refusal
        self._service.metrics.count_refusal(refusal.code)
        response = problem(refusal)
        head = encode_head(response, head=False, close=True, chunked=False)
        transport.write(head + response.body)
        self._close_gracefully()

    def _close_gracefully(self) -> None:
        """
        Close, but let the client read the response first.

        Closing with unread bytes would reset the connection and discard the response.
        """
        self._closing = True
        self._drop_requests()
        transport = self._transport
        if transport is None:
            return
        if self._eof or (self._refusal is None and not transport.can_write_eof()):
            transport.close()
            return
        if transport.can_write_eof():
            transport.write_eof()
        if not self._reading or self._held:
            transport.resume_reading()
        self._server.loop.call_later(LINGER_S, transport.close)

    # -- time --------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no request is arriving, waiting or being served."""
        return self._current is None and not self._queue and not self._arriving

    def close_if_idle(self) -> None:
        """The server stops: close unless a request is in progress."""
        if self.idle and self._transport is not None:
            self._closing = True
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def check_deadlines(self, now: float) -> None:
        """Called about once a second."""
        if self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent == 0 or unsent < self._unsent:
            # Everything was sent, or the client is slow, but reading.
            self._unsent_since = now
        self._unsent = unsent
        if now - self._unsent_since > WRITE_STALL_S:
            self._transport.abort()
        elif self._closing or self._current is not None or self._held:
            return
        elif not self._arriving:
            # A request begins with its first byte: on_message_begin is called then.
            if now - self._since > KEEP_ALIVE_S:
                self._transport.close()
        elif now - self._since > (REQUEST_HEAD_S if self._in_head else REQUEST_BODY_IDLE_S):
            self._refuse(RequestTimeout())
