"""What passes between a transport and the service."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tailrace.server.guard.access import Principal

__all__ = ["BodySink", "Frame", "LiveBody", "Request", "Response", "Sink", "Waiting"]


class BodySink(Protocol):
    """Where a body goes that is too large to be collected: the service's side of a request."""

    @property
    def blocked(self) -> bool:
        """Read nothing more from the client until `drained` is called."""

    drained: Callable[[], None] | None

    @property
    def size(self) -> int:
        """How much has come so far."""

    def write(self, data: bytes) -> None:
        """
        Take a piece of the body.

        Raises:
            Refusal: It is too large, or cannot be stored.
        """

    def cancel(self) -> None:
        """The rest will not come, or the request was refused."""


class Request:
    """A whole request. Header names are in lower case; a repeated header is joined by a comma."""

    __slots__ = (
        "address", "body", "headers", "method", "operation", "path", "principal", "query",
        "repeated", "sink", "started",
    )  # fmt: skip

    # What an app that we are mounted in says of how it was reached.
    scheme: bytes
    prefix: bytes

    def __init__(
        self, method: str, path: bytes, query: bytes, headers: dict[bytes, bytes], body: bytes
    ) -> None:
        self.method = method
        # As sent, still percent-encoded, without the prefix that an app is mounted under.
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        # Which headers came more than once, if any did.
        self.repeated: frozenset[bytes] | None = None
        # Where the body went, if it was not collected; `body` is empty then.
        self.sink: BodySink | None = None
        # Where it came from, as far as the transport knows.
        self.address = ""
        # Who sent it, where there is access control.
        self.principal: Principal | None = None
        # What it asked for, and when the service got it: for the metrics.
        self.operation = "unknown"
        self.started = 0.0

    @property
    def url(self) -> bytes:
        """Where the client found us, as far as it and the proxies before us say."""
        scheme = self.headers.get(b"x-forwarded-proto", self.scheme)
        if scheme not in (b"http", b"https"):
            scheme = self.scheme
        host = self.headers.get(b"host", b"localhost")
        return b"%b://%b%b%b" % (scheme, host, self.prefix, self.path)


class Frame:
    """A piece of a live answer, encoded once for however many readers."""

    __slots__ = ("_chunk", "data")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self._chunk: bytes | None = None

    @property
    def chunk(self) -> bytes:
        """The same in HTTP/1.1 chunked framing."""
        if self._chunk is None:
            self._chunk = b"".join((b"%x\r\n" % len(self.data), self.data, b"\r\n"))
        return self._chunk


class Sink(Protocol):
    """Where a live answer goes: a transport's side of it."""

    @property
    def blocked(self) -> bool:
        """The peer is slow: write nothing more until `LiveBody.drained`."""

    def write_frame(self, frame: Frame) -> None: ...

    def finish(self) -> None:
        """The answer is complete."""

    def abort(self) -> None:
        """The answer cannot be completed: cut the peer off, so that it notices."""


class LiveBody(Protocol):
    """A body that goes on: the service's side of a live answer."""

    endless: bool
    """It waits for what is yet to come; a client that stops listening need not be written to."""

    def start(self, sink: Sink) -> None: ...

    def drained(self) -> None:
        """The sink can take more."""

    def cancel(self) -> None:
        """The peer is gone."""


class Response:
    """A whole answer, or the head of a live one, whose length may be known all the same."""

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
        # Of a refusal, for the metrics.
        self.code: str | None = None


class Waiting(Protocol):
    """A request whose answer comes later."""

    endless: bool
    """It waits for what is yet to come, as a `LiveBody` may."""

    def cancel(self) -> None:
        """The peer is gone: forget about it."""
