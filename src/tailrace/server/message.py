"""What passes between a transport and the service."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from tailrace.server.routing.target import UNRESOLVED, Target

if TYPE_CHECKING:
    from tailrace.server.guard.access import Principal

__all__ = [
    "WRITE_STALL_S",
    "BodySink",
    "Frame",
    "LiveBody",
    "Reply",
    "Request",
    "Response",
    "Sink",
    "Waiting",
]

WRITE_STALL_S: Final = 60.0
"""A client that reads nothing of its response for so long is disconnected."""


class BodySink(Protocol):
    """Takes a body that is too large to be collected: the service's side of a request."""

    @property
    def blocked(self) -> bool:
        """Whether to read nothing more from the client until `drained` is called."""

    drained: Callable[[], None] | None

    @property
    def size(self) -> int:
        """The number of bytes received so far."""

    def write(self, data: bytes) -> None:
        """
        Take a piece of the body.

        Raises:
            Refusal: It is too large, or cannot be stored.
        """

    def cancel(self) -> None:
        """Discard the body: the rest will not arrive, or the request was refused."""


class Request:
    """A request. Header names are in lower case; the values of a repeated header are joined."""

    __slots__ = (
        "address", "body", "headers", "method", "operation", "path", "principal", "query",
        "repeated", "sink", "started", "target",
    )  # fmt: skip

    # How the client reached us: set by the transport.
    scheme: bytes
    prefix: bytes

    def __init__(
        self, method: str, path: bytes, query: bytes, headers: dict[bytes, bytes], body: bytes
    ) -> None:
        self.method = method
        # As sent, still percent-encoded, without the prefix that the app is mounted under.
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        # Resolved once: when the headers of an upload arrive, or when it is handled.
        self.target: Target = UNRESOLVED
        # The names of the headers that were repeated, if any were.
        self.repeated: frozenset[bytes] | None = None
        # Holds the body, if it was not collected; `body` is empty then.
        self.sink: BodySink | None = None
        # The peer of the connection, if the transport knows it.
        self.address = ""
        # Set by the guard, if there is access control.
        self.principal: Principal | None = None
        # For the metrics; `started` is when the service got it.
        self.operation = "unknown"
        self.started = 0.0

    @property
    def url(self) -> bytes:
        """The URL that the client used, from its headers and those of proxies."""
        return self.origin + self.path

    @property
    def origin(self) -> bytes:
        """The start of that URL: scheme, host, and the prefix that the app is mounted under."""
        scheme = self.headers.get(b"x-forwarded-proto", self.scheme)
        if scheme not in (b"http", b"https"):
            scheme = self.scheme
        host = self.headers.get(b"host", b"localhost")
        return b"%b://%b%b" % (scheme, host, self.prefix)


class Frame:
    """A piece of a live response, encoded once for any number of readers."""

    __slots__ = ("_chunk", "data")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self._chunk: bytes | None = None

    @property
    def chunk(self) -> bytes:
        """The data in HTTP/1.1 chunked framing."""
        if self._chunk is None:
            self._chunk = b"".join((b"%x\r\n" % len(self.data), self.data, b"\r\n"))
        return self._chunk


class Sink(Protocol):
    """Takes a live response: the transport's side of it."""

    @property
    def blocked(self) -> bool:
        """Whether the peer is slow: write nothing more until `LiveBody.drained` is called."""

    def write_frame(self, frame: Frame) -> None: ...

    def finish(self) -> None:
        """The response is complete."""

    def abort(self) -> None:
        """The response cannot be completed: close the connection, so that the peer notices."""


class LiveBody(Protocol):
    """A body that is made while it is sent: the service's side of a live response."""

    endless: bool
    """Whether it waits for future data; then it can end when its client stops listening."""

    def start(self, sink: Sink) -> None: ...

    def drained(self) -> None:
        """The sink can take more."""

    def cancel(self) -> None:
        """The peer is gone."""


class Response:
    """
    A whole response, or the head of a live one; `length` is that of a live body, if known.

    Transports do not send the body of a response to HEAD.
    """

    __slots__ = ("body", "code", "headers", "length", "live", "status")

    def __init__(
        self,
        status: int,
        headers: list[tuple[bytes, bytes]],
        body: bytes = b"",
        live: LiveBody | None = None,
        length: int | None = None,
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.live = live
        self.length = length
        # The code of a refusal, for the metrics.
        self.code: str | None = None


Reply = Callable[[Response], None]


class Waiting(Protocol):
    """A request whose response comes later."""

    endless: bool
    """As in `LiveBody`."""

    def cancel(self) -> None:
        """The peer is gone: there will be no response."""
