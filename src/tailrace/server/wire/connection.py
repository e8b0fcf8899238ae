"""
One connection: bytes to requests, answers to bytes.

Rule 1: one request at a time. What is pipelined behind it waits, parsed, and nothing more is read
until it is served; answers come in the order of requests.

Rule 2: no client decides how much memory or time it costs. Target, headers and body have limits,
each phase of a request has a deadline, and a reader that does not drain stops being written to.

Rule 3: after a refusal that leaves the rest of the request unread, the connection is closed, and
what still arrives is dropped for a moment first, so that the client can read the answer.

No task and no future per request: an append completes by callback.
"""

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import httptools

from tailrace.protocol.errors import Refusal
from tailrace.server.errors import (
    BodyTooLarge,
    HeadersTooLarge,
    MalformedRequest,
    RequestTimeout,
    TooManyConnections,
    TransferCodingUnknown,
    UpgradeRefused,
    UriTooLong,
)
from tailrace.server.message import Frame, Request, Response, Waiting
from tailrace.server.problem import problem
from tailrace.server.wire.encode import CONTINUE, LAST_CHUNK, encode_head

if TYPE_CHECKING:
    from tailrace.server.wire.server import WireServer

__all__ = ["Connection"]

TARGET_BYTES_MAX: Final = 8 << 10
HEADERS_BYTES_MAX: Final = 32 << 10
HEADERS_COUNT_MAX: Final = 100
REQUEST_HEAD_S: Final = 15.0
REQUEST_BODY_IDLE_S: Final = 30.0
KEEP_ALIVE_S: Final = 75.0
WRITE_STALL_S: Final = 60.0
LINGER_S: Final = 1.0
WRITE_BUFFER_BYTES_HIGH: Final = 256 << 10
_FRAME_BYTES_LARGE: Final = 64 << 10


_HOP_HEADERS: Final = frozenset((b"connection", b"upgrade", b"http2-settings"))
_METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS")
}


class _Parsed(Request):
    """A request that has arrived, and what its answer must know of the connection."""

    __slots__ = ("close", "http_1_0")

    scheme = b"http"
    prefix = b""
    close: bool
    http_1_0: bool


class Connection(asyncio.Protocol):
    """An HTTP/1.1 connection; also the sink of a live answer."""

    def __init__(self, server: "WireServer") -> None:
        self._server = server
        self._service = server.service
        self._body_bytes_max = server.settings.body_bytes_max
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[_Parsed] = deque()
        self._current: _Parsed | None = None
        self._waiting: Waiting | None = None
        self._live: Response | None = None
        self.blocked = False
        self._blocked_since = 0.0
        self._blocked_bytes = 0
        self._closing = False
        self._eof = False
        self._reading = True
        # The request that is arriving.
        self._arriving = False
        self._in_head = True
        self._since = server.now
        self._head_fed = 0
        self._refusal: Refusal | None = None
        self._url = self._body = b""
        self._headers: dict[bytes, bytes] = {}
        self._headers_count = self._trailers_bytes = self._body_bytes = 0
        self._repeated: frozenset[bytes] | None = None
        # Only of a body that comes in several pieces.
        self._pieces: list[bytes] | None = None

    # -- asyncio's side ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_HIGH)
        if not self._server.admit(self):
            self._refuse(TooManyConnections())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closing = True
        self._queue.clear()
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._live is not None and self._live.live is not None:
            self._live.live.cancel()
            self._live = None
        self._server.leave(self)

    def eof_received(self) -> bool:
        """A client that half-closes still gets the answer to what it sent, unless it only waits."""
        self._eof = True
        if self._waiting is not None or self._live is not None:
            return False
        return self._current is not None or bool(self._queue)

    def pause_writing(self) -> None:
        self.blocked = True
        self._blocked_since = self._server.now
        self._blocked_bytes = sys.maxsize

    def resume_writing(self) -> None:
        self.blocked = False
        if self._live is not None and self._live.live is not None:
            self._live.live.drained()
        elif self._current is None:
            self._next()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._in_head:
            self._head_fed += len(data)
        else:
            self._since = self._server.now
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            if self._refusal is None:
                self._refusal = MalformedRequest(f"not a valid HTTP/1.1 request: {error}")
        if self._refusal is None and self._in_head and self._head_fed > _HEAD_FED_MAX:
            self._refusal = HeadersTooLarge(HEADERS_BYTES_MAX, HEADERS_COUNT_MAX)
        if self._refusal is not None and self._current is None and not self._queue:
            self._refuse(self._refusal)

    def _ignore_upgrade(self, rest: bytes) -> None:
        """
        Answer a request for another protocol in this one, as RFC 9110 allows.

        The parser takes what follows such a head for the other protocol, so the head goes through
        a new parser without that wish, and the rest after it. (Some HTTP clients ask for h2c with
        every first request.)
        """
        method = self._parser.get_method()
        if self._refusal is not None or method == b"CONNECT":
            self._refusal = self._refusal or UpgradeRefused()
            return
        headers = [item for item in self._headers.items() if item[0] not in _HOP_HEADERS]
        head = b"%b %b HTTP/1.1\r\n" % (method, self._url)
        head += b"".join(b"%b: %b\r\n" % item for item in headers)
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(head + b"\r\n" + rest)

    # -- httptools' side ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url = self._body = b""
        self._headers = {}
        self._headers_count = self._trailers_bytes = self._body_bytes = 0
        self._repeated = self._pieces = None
        self._arriving = True
        self._in_head = True
        self._since = self._server.now

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > TARGET_BYTES_MAX:
            self._refusal = self._refusal or UriTooLong(TARGET_BYTES_MAX)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers_count += 1
        if self._in_head:
            name = name.lower()
            headers = self._headers
            if name in headers:
                self._repeat(name, value)
            else:
                # The parser leaves white space at the end, which is no part of the value.
                headers[name] = value.rstrip(b" \t")
        else:
            self._trailer(len(name) + len(value))

    def _repeat(self, name: bytes, value: bytes) -> None:
        """As RFC 9110 has it, a list; the service refuses it where there must be one value."""
        if self._headers_count <= HEADERS_COUNT_MAX:
            self._headers[name] += b", " + value.rstrip(b" \t")
            self._repeated = (self._repeated or frozenset()) | {name}

    def _trailer(self, size: int) -> None:
        """Fields after a chunked body: no part of the protocol, read and dropped."""
        self._trailers_bytes += size
        if self._headers_count > HEADERS_COUNT_MAX or self._trailers_bytes > HEADERS_BYTES_MAX:
            self._refusal = self._refusal or HeadersTooLarge(HEADERS_BYTES_MAX, HEADERS_COUNT_MAX)

    def on_headers_complete(self) -> None:
        self._in_head = False
        fed, self._head_fed = self._head_fed, 0
        if self._refusal is not None:
            return
        headers = self._headers
        # `fed` is 0 for a request that came in one packet with the one before it.
        if self._headers_count > HEADERS_COUNT_MAX or (
            (fed > HEADERS_BYTES_MAX or fed == 0) and _size(headers) > HEADERS_BYTES_MAX
        ):
            self._refusal = HeadersTooLarge(HEADERS_BYTES_MAX, HEADERS_COUNT_MAX)
        elif b"host" not in headers and self._parser.get_http_version() == "1.1":
            self._refusal = MalformedRequest("the Host header is missing")
        elif self._repeated is not None and b"host" in self._repeated:
            self._refusal = MalformedRequest("there is more than one Host header")
        elif headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            self._refusal = TransferCodingUnknown()
        elif b"content-length" in headers and (
            int(headers[b"content-length"]) > self._body_bytes_max
        ):
            self._refusal = BodyTooLarge(self._body_bytes_max)
        elif b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            self._continue()

    def _continue(self) -> None:
        """The client waits for a word before it sends the body; not amid another answer."""
        first = self._current is None and not self._queue
        if self._transport is not None and first and self._parser.get_http_version() != "1.0":
            self._transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        if self._refusal is not None:
            return
        self._body_bytes += len(body)
        if self._body_bytes > self._body_bytes_max:
            self._refusal = BodyTooLarge(self._body_bytes_max)
            self._pieces = None
        elif not self._body:
            self._body = body
        elif self._pieces is None:
            self._pieces = [self._body, body]
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._arriving = False
        self._in_head = True
        self._since = self._server.now
        parser = self._parser
        if self._refusal is not None or parser.should_upgrade():
            return
        url = self._url
        if url[:1] == b"/":
            path, _, query = url.partition(b"?")
        else:
            try:
                path, query = _split_target(url)
            except httptools.HttpParserError as error:
                self._refusal = MalformedRequest(f"not a valid request target: {error}")
                return
        method = parser.get_method()
        body = self._body if self._pieces is None else b"".join(self._pieces)
        headers = self._headers
        parsed = _Parsed(_METHODS.get(method) or method.decode("ascii"), path, query, headers, body)
        close = not parser.should_keep_alive()
        parsed.close = close
        parsed.http_1_0 = False
        if close or b"connection" in headers:
            # Asked only where it can be another one: the answer costs as much as a header.
            version = parser.get_http_version()
            parsed.http_1_0 = version == "1.0"
            if version not in ("1.0", "1.1"):
                self._refusal = MalformedRequest(f"HTTP/{version} is not spoken here, use 1.1")
                return
        parsed.repeated = self._repeated
        if self._current is None and not self._queue and not self.blocked:
            self._serve(parsed)
            return
        self._queue.append(parsed)
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    # -- requests and answers ----------------------------------------------------------------

    def _serve(self, parsed: _Parsed) -> None:
        self._current = parsed
        waiting = self._service.handle(parsed, self._respond)
        if self._current is parsed and waiting is not None:
            self._waiting = waiting

    def _respond(self, response: Response) -> None:
        transport, parsed = self._transport, self._current
        if transport is None or parsed is None:
            if response.live is not None:
                response.live.cancel()
            return
        self._waiting = None
        close = parsed.close or self._server.draining or (self._eof and not self._queue)
        chunked = response.live is not None and not parsed.http_1_0
        if response.live is not None and parsed.http_1_0:
            close = True
        parsed.close = close
        head = encode_head(response, head=parsed.method == "HEAD", close=close, chunked=chunked)
        if response.live is not None:
            self._live = response
            transport.write(head)
            response.live.start(self)
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
        if self._current.http_1_0:
            self._transport.write(data)
        elif len(data) < _FRAME_BYTES_LARGE:
            self._transport.write(frame.chunk)
        else:
            # Not copied: the same bytes may be on their way to a thousand readers.
            self._transport.writelines((b"%x\r\n" % len(data), data, b"\r\n"))

    def finish(self) -> None:
        """The live answer is complete."""
        if self._transport is None or self._current is None:
            return
        self._live = None
        if not self._current.http_1_0:
            self._transport.write(LAST_CHUNK)
        self._current.close = self._current.close or self._server.draining
        self._done()

    def _done(self) -> None:
        parsed, self._current = self._current, None
        self._since = self._server.now
        if self._transport is None or parsed is None:
            return
        if parsed.close:
            self._hang_up()
        elif self._queue or self._refusal is not None or not self._reading:
            # Not from here: a run of pipelined requests must not become a run of stack frames.
            self._server.loop.call_soon(self._next)

    def _next(self) -> None:
        """Serve what was pipelined behind the last request."""
        if self._transport is None or self._current is not None or self.blocked:
            return
        if self._queue:
            self._serve(self._queue.popleft())
        elif self._refusal is not None and not self._closing:
            self._refuse(self._refusal)
        elif not self._reading and not self._closing:
            self._reading = True
            self._transport.resume_reading()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what could not be read to its end, then close."""
        transport = self._transport
        if transport is None:
            return
        response = problem(refusal)
        head = encode_head(response, head=False, close=True, chunked=False)
        transport.write(head + response.body)
        self._hang_up()

    def _hang_up(self) -> None:
        """
        Close, but let the client read the answer first.

        Closing with bytes unread would reset the connection and take the answer along.
        """
        self._closing = True
        transport = self._transport
        if transport is None:
            return
        if self._eof or not transport.can_write_eof():
            transport.close()
            return
        transport.write_eof()
        if not self._reading:
            transport.resume_reading()
        self._server.loop.call_later(LINGER_S, transport.close)

    # -- time --------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing has arrived and nothing is owed."""
        return self._current is None and not self._queue and not self._arriving

    def close_if_idle(self) -> None:
        """The server stops: whoever owes us a request need not send it."""
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
        if self.blocked:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._blocked_bytes:
                # Slow, but reading.
                self._blocked_since, self._blocked_bytes = now, unsent
            elif now - self._blocked_since > WRITE_STALL_S:
                self._transport.abort()
        elif self._closing or self._current is not None:
            return
        elif not self._arriving:
            # A partial request line counts as nothing yet: on_message_begin comes with its bytes.
            if now - self._since > KEEP_ALIVE_S:
                self._transport.close()
        elif now - self._since > (REQUEST_HEAD_S if self._in_head else REQUEST_BODY_IDLE_S):
            self._refuse(RequestTimeout())


# What may be fed before a head is complete: a little over its limits, for names and line ends.
_HEAD_FED_MAX: Final = TARGET_BYTES_MAX + 2 * HEADERS_BYTES_MAX


def _size(headers: dict[bytes, bytes]) -> int:
    return sum(map(len, headers)) + sum(map(len, headers.values()))


def _split_target(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a target that is not a path: `*`, or a whole URL as proxies send it."""
    if url == b"*":
        return url, b""
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""
