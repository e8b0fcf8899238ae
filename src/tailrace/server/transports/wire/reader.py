"""
The reading half of a connection: bytes to requests.

Rule 1: the memory of a request is bounded: target, headers, trailers and body have limits, and what
exceeds one is refused without being kept.

Rule 2: a request is served when all of it has arrived. One that is cut off changes nothing.

This is a base class of `Connection`, and not an object of its own, because its callbacks run for
every header of every request: they set attributes of one object and avoid calls.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import httptools

from tailrace.protocol.errors import Refusal
from tailrace.server.errors import (
    BodyTooLarge,
    HeadersTooLarge,
    MalformedRequest,
    UpgradeRefused,
    UriTooLong,
)
from tailrace.server.message import BodySink, Request
from tailrace.server.routing.target import STREAM_PREFIX
from tailrace.server.transports.framing import (
    HEADERS_BYTES_MAX,
    HEADERS_COUNT_MAX,
    TARGET_BYTES_MAX,
    check_framing,
    headers_size,
)

if TYPE_CHECKING:
    from tailrace.server.transports.wire.server import WireServer

__all__ = ["ParsedRequest", "RequestReader", "SecureRequest"]

PIECES_MAX: Final = 1024
EARLY_BYTES_MIN: Final = 1 << 20
"""The checks of a larger body come before it is sent; those of a smaller one after it."""
GUARDED_BYTES_MIN: Final = 64 << 10
"""The same with access control or limits: it bounds the memory of refused requests."""

_HOP_HEADERS: Final = frozenset((b"connection", b"upgrade", b"http2-settings", b"expect"))
_PERSISTENCE: Final = frozenset((b"close", b"keep-alive"))
_METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS")
}


class ParsedRequest(Request):
    """A request, and what its response must know of the connection."""

    __slots__ = ("close", "http_1_0")

    scheme = b"http"
    prefix = b""
    close: bool
    http_1_0: bool


class SecureRequest(ParsedRequest):
    """A request over TLS."""

    __slots__ = ()

    scheme = b"https"


class RequestReader(ABC):
    """Parses requests; calls `arrived` with each that is complete."""

    def __init__(self, server: "WireServer") -> None:
        self._server = server
        self._body_bytes_max = server.settings.body_bytes_max
        self._new_request = SecureRequest if server.secure else ParsedRequest
        self._guarded = server.service.guard.guarded
        self._early_bytes_min = GUARDED_BYTES_MIN if self._guarded else EARLY_BYTES_MIN
        self._parser = httptools.HttpRequestParser(self)
        self._refusal: Refusal | None = None
        self._arriving = False
        self._in_head = True
        # When the current phase of a request began, or last made progress.
        self._since = server.now
        self._head_fed = 0
        self._url = self._body = b""
        self._headers: dict[bytes, bytes] = {}
        self._headers_count = self._trailers_bytes = self._body_bytes = 0
        self._repeated: frozenset[bytes] | None = None
        self._carried: frozenset[bytes] | None = None
        # Only for a body that comes in several pieces.
        self._pieces: list[bytes] | None = None
        # Many small pieces are joined from time to time: each costs more than its bytes.
        self._blocks: list[bytes] = []
        # The request whose body is arriving, if the service has checked its headers.
        self._begun: ParsedRequest | None = None
        # Takes that body, if it is not collected.
        self._sink: BodySink | None = None

    @abstractmethod
    def arrived(self, parsed: ParsedRequest) -> None:
        """A request is complete."""

    @abstractmethod
    def begins(self, head: ParsedRequest) -> BodySink | None:
        """
        A request with a body has begun: return the sink for it, or None to collect it.

        Raises:
            Refusal: The body need not be sent.
        """

    @abstractmethod
    def expects_continue(self) -> None:
        """The client waits for `100 Continue` before it sends the body."""

    def feed(self, data: bytes) -> None:
        """Parse received data; sets `_refusal` if it is invalid."""
        rest: bytes | None = data
        while rest is not None:
            rest = self._feed(rest)
        if self._refusal is None and self._in_head and self._head_fed > _HEAD_FED_MAX:
            self._refusal = HeadersTooLarge(HEADERS_BYTES_MAX, HEADERS_COUNT_MAX)

    def _feed(self, data: bytes) -> bytes | None:
        if self._in_head:
            self._head_fed += len(data)
        else:
            self._since = self._server.now
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            if self._refusal is None:
                self._refusal = MalformedRequest(f"not a valid HTTP/1.1 request: {error}")
        return None

    def _ignore_upgrade(self, rest: bytes) -> bytes | None:
        """
        Ignore an Upgrade header, as RFC 9110 allows.

        The parser treats what follows such a head as the other protocol. So the head goes through
        a new parser without that header, and the rest after it. (Some HTTP clients offer h2c with
        every first request.)
        """
        method = self._parser.get_method()
        if self._refusal is not None or method == b"CONNECT":
            self._refusal = self._refusal or UpgradeRefused()
            return None
        headers = [item for item in self._headers.items() if item[0] not in _HOP_HEADERS]
        version = self._parser.get_http_version().encode()
        head = b"%b %b HTTP/%b\r\n" % (method, self._url, version)
        head += b"".join(b"%b: %b\r\n" % item for item in headers)
        options = self._headers.get(b"connection", b"").lower().split(b",")
        # Whether the connection ends after this request is still up to the client.
        for option in _PERSISTENCE.intersection(map(bytes.strip, options)):
            head += b"connection: %b\r\n" % option
        # In the new head, repeated headers are already joined.
        self._carried = self._repeated
        self._parser = httptools.HttpRequestParser(self)
        return head + b"\r\n" + rest

    # -- httptools' callbacks ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url = self._body = b""
        self._headers = {}
        self._headers_count = self._trailers_bytes = self._body_bytes = 0
        self._repeated, self._carried = self._carried, None
        self._pieces = None
        self._begun = None
        if self._sink is not None:
            # The request before was refused before it was complete.
            self._sink.cancel()
            self._sink = None
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
                # The parser leaves trailing white space, which is not part of the value.
                headers[name] = value.rstrip(b" \t")
        else:
            self._trailer(len(name) + len(value))

    def _repeat(self, name: bytes, value: bytes) -> None:
        """Join the values, as RFC 9110 allows; the service refuses where one is required."""
        if self._headers_count <= HEADERS_COUNT_MAX:
            self._headers[name] += b", " + value.rstrip(b" \t")
            self._repeated = (self._repeated or frozenset()) | {name}

    def _trailer(self, size: int) -> None:
        """Fields after a chunked body are not part of the protocol: read and dropped."""
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
            (fed > HEADERS_BYTES_MAX or fed == 0) and headers_size(headers) > HEADERS_BYTES_MAX
        ):
            self._refusal = HeadersTooLarge(HEADERS_BYTES_MAX, HEADERS_COUNT_MAX)
        elif (
            b"host" not in headers or self._repeated is not None or b"transfer-encoding" in headers
        ):
            # Not for every request: the call and the version cost as much as a header each.
            version = self._parser.get_http_version()
            self._refusal = check_framing(headers, self._repeated, version)
        if self._refusal is None:
            if (self._guarded or not self._url.startswith(STREAM_PREFIX)) and not self._find_sink():
                return
            if (
                b"content-length" in headers
                and self._sink is None
                and int(headers[b"content-length"]) > self._body_bytes_max
            ):
                self._refusal = BodyTooLarge(self._body_bytes_max)
            elif b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
                self.expects_continue()

    def _find_sink(self) -> bool:
        """Get a sink from the service; false if the request is refused."""
        method = self._parser.get_method()
        if method != b"PUT" and not (self._guarded and self._is_large()):
            return True
        try:
            path, query = _split_target(self._url)
            self._begun = self._new_request(method.decode("ascii"), path, query, self._headers, b"")
            self._sink = self.begins(self._begun)
        except Refusal as refusal:
            self._refusal = refusal
            return False
        except httptools.HttpParserError:
            # Refused when the request is complete.
            return True
        return True

    def _is_large(self) -> bool:
        """Whether to check the request before its body is sent."""
        headers = self._headers
        return (
            b"transfer-encoding" in headers
            or b"expect" in headers
            or int(headers.get(b"content-length", b"0")) > self._early_bytes_min
        )

    def on_body(self, body: bytes) -> None:
        if self._refusal is not None:
            return
        if self._sink is not None:
            try:
                self._sink.write(body)
            except Refusal as refusal:
                self._refusal = refusal
            return
        self._body_bytes += len(body)
        if self._body_bytes > self._body_bytes_max:
            self._refusal = BodyTooLarge(self._body_bytes_max)
            self._pieces = None
        elif not self._body:
            self._body = body
        elif self._pieces is None:
            self._pieces = [self._body, body]
            self._blocks.clear()
        else:
            self._pieces.append(body)
            if len(self._pieces) >= PIECES_MAX:
                self._blocks.append(b"".join(self._pieces))
                self._pieces.clear()

    def on_message_complete(self) -> None:
        self._arriving = False
        self._in_head = True
        self._since = self._server.now
        parser = self._parser
        if self._refusal is not None or parser.should_upgrade():
            return
        url = self._url
        if url[:1] == b"/":
            # Nearly always: avoids a call.
            path, _, query = url.partition(b"?")
        else:
            try:
                path, query = _split_target(url)
            except httptools.HttpParserError as error:
                self._refusal = MalformedRequest(f"not a valid request target: {error}")
                return
        method = parser.get_method()
        body = self._body
        if self._pieces is not None:
            body = b"".join((*self._blocks, *self._pieces))
            self._blocks.clear()
        headers = self._headers
        parsed = self._begun
        if parsed is None:
            parsed = self._new_request(
                _METHODS.get(method) or method.decode("ascii"), path, query, headers, body
            )
        else:
            # Its target is already resolved.
            self._begun = None
            parsed.body = body
        close = not parser.should_keep_alive()
        parsed.close = close
        parsed.http_1_0 = False
        if close or b"connection" in headers:
            # Only if it can differ from 1.1: the call costs as much as a header.
            version = parser.get_http_version()
            parsed.http_1_0 = version == "1.0"
            if version not in ("1.0", "1.1"):
                self._refusal = MalformedRequest(f"HTTP/{version} is not supported, use 1.1")
                return
        parsed.repeated = self._repeated
        if self._sink is not None:
            # From now on the request cancels it.
            parsed.sink, self._sink = self._sink, None
        self.arrived(parsed)


# Data before a head is complete: slightly more than its limits, for names and line ends.
_HEAD_FED_MAX: Final = TARGET_BYTES_MAX + 2 * HEADERS_BYTES_MAX


def _split_target(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request target: a path, a whole URL as proxies send it, or `*`."""
    if url[:1] == b"/":
        path, _, query = url.partition(b"?")
        return path, query
    if url == b"*":
        return url, b""
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""
