"""The blocking shell: performs effects by waiting, over the standard library's `http.client`."""

import http.client
import inspect
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar
from urllib.parse import urlsplit

from tailrace.client.errors import AnswerInvalid, Unreachable
from tailrace.client.flow import (
    Ahead,
    Answer,
    Body,
    Call,
    Effect,
    Flow,
    Give,
    Piece,
    Send,
    Value,
    Wait,
)
from tailrace.client.items import Items
from tailrace.client.requests import Options
from tailrace.client.sync.connections import Connections

__all__ = ["Handle", "Shell", "iterates", "runs"]

P = ParamSpec("P")
T = TypeVar("T")
F_co = TypeVar("F_co", covariant=True)

# More than a producer's batch, which goes in one piece.
LARGE_BYTES: Final = 2 << 20
SENT_BYTES: Final = 256 << 10


class _Exchange:
    """One request at a time, and what is left to read of its answer."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._response: http.client.HTTPResponse | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._ahead: tuple[Call, http.client.HTTPConnection] | None = None
        self._place = ("", "")
        self._url = ""

    def ahead(self, call: Call) -> None:
        """Begin with a request; if that fails, sending it will tell."""
        self.close()
        with suppress(Unreachable):
            self._ahead = call, self._begin(call)

    def send(self, call: Call) -> Answer:
        if self._ahead is not None and self._ahead[0] is call:
            connection, self._ahead = self._ahead[1], None
        else:
            self.close()
            connection = self._begin(call)
        try:
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(call.url, _reason(error)) from error
        self._connection, self._response = connection, response
        headers = {name.lower(): value for name, value in response.getheaders()}
        if headers.get("content-encoding", "identity") != "identity":
            # Nobody asked for it.
            self.close()
            raise AnswerInvalid(call.url, "the answer is compressed, though that was not asked for")
        return Answer(response.status, headers, call.url)

    def _begin(self, call: Call) -> http.client.HTTPConnection:
        """A connection on which a request was sent."""
        self._url = call.url
        parts = urlsplit(call.url)
        self._place = (parts.scheme, parts.netloc)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection = self._connections.take(*self._place)
        sent = False
        try:
            if connection.sock is None:
                connection.connect()
            sent = True
            assert connection.sock is not None
            connection.sock.settimeout(call.idle_s or self._connections.timeout_s)
            # It may have answered before all was sent, that it is too large: reading will tell.
            with suppress(BrokenPipeError, ConnectionResetError):
                _send(connection, call, target)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(call.url, _reason(error), sent) from error
        return connection

    def read(self, size: int | None) -> bytes:
        """The rest of the answer, or what comes next of it."""
        response = self._response
        if response is None:
            return b""
        try:
            data = response.read() if size is None else response.read1(size)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(self._url, _reason(error)) from error
        if size is None or not data:
            self._finish()
        return data

    def _finish(self) -> None:
        """The answer is read to its end: the connection can be used again."""
        connection, response = self._connection, self._response
        self._connection = self._response = None
        if connection is None or response is None:
            return
        response.close()
        if response.will_close:
            connection.close()
        else:
            self._connections.give_back(*self._place, connection)

    def close(self) -> None:
        """Whatever is left of an answer is not wanted."""
        if self._response is not None and self._response.isclosed():
            self._finish()
        if self._connection is not None:
            self._connection.close()
        if self._ahead is not None:
            self._ahead[1].close()
        self._connection = self._response = self._ahead = None


def _send(connection: http.client.HTTPConnection, call: Call, target: str) -> None:
    headers = dict(call.headers)
    if len(call.body) <= LARGE_BYTES:
        connection.request(call.method, target, call.body or None, headers)
        return
    # Piece by piece: the time-out is then for each, and not for all of it.
    headers["content-length"] = str(len(call.body))
    view = memoryview(call.body)
    pieces = (view[at : at + SENT_BYTES] for at in range(0, len(view), SENT_BYTES))
    connection.request(call.method, target, pieces, headers)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


class Shell:
    """Performs effects by waiting for them."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its result."""
        drive = self._drive(flow)
        try:
            while True:
                next(drive)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def iterate(self, items: Items[T]) -> Generator[T, None, None]:
        """Drive a flow, and hand out what it gives."""
        yield from self._drive(items.flow)

    def _drive(self, flow: Flow[Any]) -> Any:
        exchange = _Exchange(self._connections)
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
                    yield from effect.items
                    continue
                try:
                    outcome = _perform(effect, exchange)
                except Exception as failed:
                    # Not only `Unreachable`: something of the user's may have failed as well.
                    error = failed
        finally:
            flow.close()
            exchange.close()


def _perform(effect: Effect, exchange: _Exchange) -> Any:
    match effect:
        case Send(call):
            return exchange.send(call)
        case Ahead(call):
            exchange.ahead(call)
            return None
        case Body():
            return exchange.read(None)
        case Piece(size):
            return exchange.read(size)
        case Wait(seconds):
            time.sleep(seconds)
            return None
        case Value(source):
            value = source()
            if inspect.iscoroutine(value):
                value.close()
                raise TypeError("something to await is for an AsyncClient")
            return value
    raise AssertionError(f"unknown effect {effect!r}")


class Handle(Generic[F_co]):
    """What stands for something on a server: its flows, and the shell that performs them."""

    def __init__(self, shell: Shell, flows: F_co, options: Options) -> None:
        self._shell = shell
        self._flows = flows
        self._options = options


def runs(
    flow: Callable[Concatenate[F_co, P], Flow[T]],
) -> "Callable[Concatenate[Handle[F_co], P], T]":
    """A method that does what a flow says."""

    @wraps(flow)
    def method(self: "Handle[F_co]", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._shell.run(flow(self._flows, *args, **kwargs))

    return method


def iterates(
    flow: Callable[Concatenate[F_co, P], Items[T]],
) -> "Callable[Concatenate[Handle[F_co], P], Generator[T, None, None]]":
    """A method that iterates over what a flow gives."""

    @wraps(flow)
    def method(
        self: "Handle[F_co]", /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T, None, None]:
        return self._shell.iterate(flow(self._flows, *args, **kwargs))

    return method
