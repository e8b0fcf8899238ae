"""The blocking driver: performs effects by waiting, over the standard library's `http.client`."""

import http.client
import inspect
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from tailrace.client.errors import AnswerInvalid, TimedOut, Unreachable
from tailrace.client.flow import (
    Flow,
    Give,
    HttpRequest,
    HttpResponse,
    Items,
    Reached,
    perform,
    reason_of,
)
from tailrace.client.iteration import Reading, ReadProgress
from tailrace.client.sync.connections import Connections

__all__ = ["Driver"]

T = TypeVar("T")

# More than a producer's batch, which is sent in one piece.
LARGE_BYTES: Final = 2 << 20
SENT_BYTES: Final = 256 << 10


class _Exchange:
    """One request at a time, and the unread rest of its response."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._response: http.client.HTTPResponse | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._prefetched: tuple[HttpRequest, http.client.HTTPConnection] | None = None
        self._origin = ("", "")
        self._url = ""
        # For `cancel` and the deadline, which come from other threads, or from a signal handler.
        self._lock = threading.RLock()
        self._socket: socket.socket | None = None
        self._stopped = threading.Event()
        self._deadline: tuple[float, float] | None = None
        self._timer: threading.Timer | None = None
        self.is_cancelled = False

    def prefetch(self, request: HttpRequest) -> None:
        """Start a request. If that fails, `send` tries again and raises the error."""
        self.close()
        with suppress(Unreachable):
            self._prefetched = request, self._begin(request)

    def send(self, request: HttpRequest) -> HttpResponse:
        if self._prefetched is not None and self._prefetched[0] is request:
            connection, self._prefetched = self._prefetched[1], None
        else:
            self.close()
            connection = self._begin(request)
        try:
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(request.url, reason_of(error)) from error
        self._connection, self._response = connection, response
        headers = {name.lower(): value for name, value in response.getheaders()}
        if headers.get("content-encoding", "identity") != "identity":
            self.close()
            raise AnswerInvalid(request.url, "the response is compressed without a request for it")
        return HttpResponse(response.status, headers, request.url)

    def _begin(self, request: HttpRequest) -> http.client.HTTPConnection:
        """A connection on which the request was sent."""
        self._url = request.url
        parts = urlsplit(request.url)
        self._origin = (parts.scheme, parts.netloc)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        headers, body = dict(request.headers), request.body
        pieces: bytes | Iterator[memoryview] | None = body or None
        if len(body) > LARGE_BYTES:
            # In pieces, so that the timeout applies to each and not to the whole body.
            headers["content-length"] = str(len(body))
            starts = range(0, len(body), SENT_BYTES)
            pieces = (memoryview(body)[at : at + SENT_BYTES] for at in starts)
        connection = self._connections.take(*self._origin)
        sent = False
        try:
            if connection.sock is None:
                connection.timeout = self._left_s(self._connections.timeout_s)
                connection.connect()
            assert connection.sock is not None
            self._watch(connection.sock)
            sent = True
            connection.sock.settimeout(request.idle_s or self._connections.timeout_s)
            # The server may reject a large body before it has all of it: read the response then.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(request.method, target, pieces, headers)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(request.url, reason_of(error), sent) from error
        return connection

    def read(self, size: int | None) -> bytes:
        """The next bytes of the response body, or the rest of it without a size."""
        response = self._response
        if response is None:
            return b""
        try:
            data = response.read() if size is None else response.read1(size)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(self._url, reason_of(error)) from error
        if size is None or not data:
            self._finish()
        return data

    def _finish(self) -> None:
        """The response was read to its end: keep the connection for the next request."""
        self._watch(None)
        connection, response = self._connection, self._response
        self._connection = self._response = None
        if connection is None or response is None:
            return
        response.close()
        if response.will_close:
            connection.close()
        else:
            self._connections.give_back(*self._origin, connection)

    def close(self) -> None:
        """Discard the rest of the response."""
        if self._response is not None and self._response.isclosed():
            self._finish()
        self._watch(None)
        if self._connection is not None:
            self._connection.close()
        if self._prefetched is not None:
            self._prefetched[1].close()
        self._connection = self._response = self._prefetched = None

    def wait(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    # -- cancellation ------------------------------------------------------------------------

    def end_after(self, seconds: float) -> None:
        """Set a deadline."""
        self._deadline = seconds, time.monotonic() + seconds
        self._timer = threading.Timer(max(0.0, seconds), self._stop)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self.is_cancelled = True
        self._stop()

    def _stop(self) -> None:
        with self._lock:
            self._stopped.set()
            self._watch(self._socket)

    def _watch(self, used: socket.socket | None) -> None:
        """Note the socket that is used from now on; after `_stop`, end a wait for its data."""
        with self._lock:
            self._socket = used
            if used is not None and self._stopped.is_set():
                # Not `SSLSocket.shutdown`, which changes the object that the other thread uses.
                with suppress(OSError):
                    socket.socket.shutdown(used, socket.SHUT_RDWR)

    def _left_s(self, seconds: float) -> float:
        if self._deadline is None:
            return seconds
        return min(seconds, max(0.001, self._deadline[1] - time.monotonic()))

    def timed_out(self) -> TimedOut | None:
        """The error, if the deadline has passed."""
        if self._deadline is None or not self._stopped.is_set():
            return None
        return TimedOut(self._url, self._deadline[0])

    def end(self) -> None:
        """The flow has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self.close()

    def evaluate(self, function: Callable[[], Any]) -> Any:
        value = function()
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError("a coroutine function needs an AsyncClient")
        return value


class Driver:
    """Runs flows, and waits for each of their effects."""

    def __init__(self, timeout_s: float) -> None:
        self._connections = Connections(timeout_s)
        self.close = self._connections.close

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its result."""
        drive = self._drive(flow, _Exchange(self._connections), ReadProgress())
        try:
            while True:
                next(drive)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def iterate(self, flow: Items[T]) -> Reading[T]:
        """Drive a flow: an iterator of the items that it gives."""
        exchange, progress = _Exchange(self._connections), ReadProgress()
        return Reading(self._drive(flow, exchange, progress), progress, exchange.cancel)

    def _drive(self, flow: Flow[Any], exchange: _Exchange, progress: ReadProgress) -> Any:
        outcome: Any = None
        error: Exception | None = None
        try:
            while True:
                try:
                    effect = flow.send(outcome) if error is None else flow.throw(error)
                except StopIteration as stop:
                    return stop.value
                outcome, error = None, None
                if isinstance(effect, Give):
                    for item in effect.items:
                        yield item
                        if exchange.is_cancelled:
                            return None
                    continue
                if isinstance(effect, Reached):
                    progress.reached = effect
                    continue
                try:
                    outcome = perform(effect, exchange)
                except Exception as failed:
                    # Also the error of a user's function, not only `Unreachable`.
                    error = failed
                if exchange.is_cancelled:
                    return None
                error = exchange.timed_out() or error
        finally:
            flow.close()
            exchange.end()
