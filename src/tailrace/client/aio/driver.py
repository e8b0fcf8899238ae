"""The asynchronous driver: performs effects by awaiting them, over aiohttp."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar

import aiohttp
from yarl import URL

from tailrace.client.errors import TimedOut, Unreachable
from tailrace.client.flow import (
    Flow,
    FlowEffect,
    Give,
    HttpRequest,
    HttpResponse,
    Items,
    Reached,
    perform,
    reason_of,
)
from tailrace.client.iteration import AsyncReading, ReadProgress

__all__ = ["AsyncDriver"]

T = TypeVar("T")

LARGE_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 64 << 10


class _Exchange:
    """One request at a time, and the unread rest of its response."""

    def __init__(self, driver: "AsyncDriver") -> None:
        self._driver = driver
        self._session: aiohttp.ClientSession | None = None
        self._response: aiohttp.ClientResponse | None = None
        self._prefetched: tuple[HttpRequest, asyncio.Task[aiohttp.ClientResponse]] | None = None
        self._url = ""
        self._seconds = 0.0
        self.deadline: float | None = None
        """By the clock of the loop."""

    async def prefetch(self, request: HttpRequest) -> None:
        """Start a request. If that fails, `send` raises the error."""
        self.close()
        self._prefetched = request, asyncio.create_task(self._begin(request))
        # Lets the task write the request, and does not wait for the response.
        await asyncio.sleep(0)

    async def send(self, request: HttpRequest) -> HttpResponse:
        if self._prefetched is not None and self._prefetched[0] is request:
            (_, task), self._prefetched = self._prefetched, None
            response = await task
        else:
            self.close()
            response = await self._begin(request)
        self._response = response
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpResponse(response.status, headers, request.url)

    async def _begin(self, request: HttpRequest) -> aiohttp.ClientResponse:
        """The response to a request, as soon as its headers are there."""
        self._url = request.url
        if self._session is None:
            # One session for the whole flow: closing the client ends the flow.
            self._session = self._driver.session()
        if self._session.closed:
            raise RuntimeError("the AsyncClient was closed during this operation")
        idle_s = request.idle_s or self._driver.timeout_s
        timeout = aiohttp.ClientTimeout(None, sock_connect=self._driver.timeout_s, sock_read=idle_s)
        headers: Mapping[str, str] = request.headers
        data: Any = request.body or None
        try:
            async with asyncio.timeout(None) as deadline:
                if len(request.body) > LARGE_BYTES:
                    headers = {**headers, "content-length": str(len(request.body))}
                    data = _pieces(request.body, deadline, idle_s)
                return await self._session.request(
                    request.method,
                    URL(request.url, encoded=True),
                    headers=headers,
                    data=data,
                    timeout=timeout,
                    allow_redirects=False,
                    # Without a type, a fork inherits that of its source.
                    skip_auto_headers=("content-type",),
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(request.url, reason_of(error), False) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(request.url, reason_of(error)) from error

    async def read(self, size: int | None) -> bytes:
        """The next bytes of the response body, or the rest of it without a size."""
        if self._response is None:
            return b""
        try:
            if size is None:
                return await self._response.read()
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.close()
            raise Unreachable(self._url, reason_of(error)) from error

    def close(self) -> None:
        """Discard the rest of the response."""
        if self._response is not None:
            if self._response.content.at_eof():
                # It was read to its end: the connection can be used again.
                self._response.release()
            else:
                self._response.close()
            self._response = None
        if self._prefetched is not None:
            self._prefetched[1].add_done_callback(_discard)
            self._prefetched[1].cancel()
            self._prefetched = None

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def end_after(self, seconds: float) -> None:
        """Set a deadline."""
        self._seconds = seconds
        self.deadline = asyncio.get_running_loop().time() + seconds

    async def perform(self, effect: FlowEffect) -> Any:
        """The result of an effect. Raises TimedOut when the deadline passes."""
        if self.deadline is None:
            return await perform(effect, self)
        try:
            async with asyncio.timeout_at(self.deadline) as scope:
                return await perform(effect, self)
        except TimeoutError:
            if not scope.expired():
                raise
            raise TimedOut(self._url, self._seconds) from None

    async def evaluate(self, function: Callable[[], Any]) -> Any:
        value = function()
        return await value if inspect.isawaitable(value) else value


async def _pieces(body: bytes, deadline: asyncio.Timeout, idle_s: float) -> AsyncIterator[bytes]:
    """A large body in pieces: aiohttp has no timeout for a server that does not read."""
    loop = asyncio.get_running_loop()
    for at in range(0, len(body), PIECE_BYTES):
        deadline.reschedule(loop.time() + idle_s)
        yield body[at : at + PIECE_BYTES]
    deadline.reschedule(loop.time() + idle_s)


def _discard(task: "asyncio.Task[aiohttp.ClientResponse]") -> None:
    """Close a response that is no longer needed."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


class AsyncDriver:
    """Runs flows, and awaits each of their effects."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def session(self) -> aiohttp.ClientSession:
        """The session, which belongs to the loop of the first request."""
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise RuntimeError("this AsyncClient is closed")
        if self._session is None:
            # Each tail holds a connection: with a limit, tails would block all other requests.
            connector = aiohttp.TCPConnector(limit=0)
            # As the blocking driver: decompression costs more than it saves on a fast network.
            plain = {"accept-encoding": "identity"}
            self._session = aiohttp.ClientSession(connector=connector, headers=plain)
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("an AsyncClient belongs to one event loop: make one for each")
        return self._session

    async def close(self) -> None:
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its result."""
        result: list[T] = []
        async with aclosing(self._drive(flow, ReadProgress(), result.append)) as drive:
            async for _ in drive:
                raise AssertionError("an operation must not give items")
        return result[0]

    def iterate(self, flow: Items[T]) -> AsyncReading[T]:
        """Drive a flow: an asynchronous iterator of the items that it gives."""
        # Not a generator around another: closing the outer one would leave the inner one open.
        progress = ReadProgress()
        return AsyncReading(self._drive(flow, progress, lambda _: None), progress)

    async def _drive(
        self, flow: Flow[Any], progress: ReadProgress, done: Callable[[Any], None]
    ) -> AsyncGenerator[Any, None]:
        exchange = _Exchange(self)
        outcome: Any = None
        error: Exception | None = None
        try:
            while True:
                try:
                    effect = flow.send(outcome) if error is None else flow.throw(error)
                except StopIteration as stop:
                    done(stop.value)
                    return
                outcome, error = None, None
                if isinstance(effect, Give):
                    for item in effect.items:
                        yield item
                    continue
                if isinstance(effect, Reached):
                    progress.reached = effect
                    continue
                try:
                    outcome = await exchange.perform(effect)
                except Exception as failed:
                    # Also the error of a user's function, not only `Unreachable`.
                    error = failed
        finally:
            flow.close()
            exchange.close()
