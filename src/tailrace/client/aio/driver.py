"""The asynchronous shell: performs effects by awaiting them, over aiohttp."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

import aiohttp
from yarl import URL

from tailrace.client.errors import Unreachable
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

__all__ = ["AsyncHandle", "AsyncShell", "iterates", "runs"]

P = ParamSpec("P")
T = TypeVar("T")
F_co = TypeVar("F_co", covariant=True)

LARGE_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 64 << 10


class _Exchange:
    """One request at a time, and what is left to read of its answer."""

    def __init__(self, shell: "AsyncShell") -> None:
        self._shell = shell
        self._session: aiohttp.ClientSession | None = None
        self._response: aiohttp.ClientResponse | None = None
        self._ahead: tuple[Call, asyncio.Task[aiohttp.ClientResponse]] | None = None
        self._url = ""

    async def ahead(self, call: Call) -> None:
        """Begin with a request; if that fails, sending it will tell."""
        self.close()
        self._ahead = call, asyncio.create_task(self._begin(call))
        # Until it is written, and not until it is answered.
        await asyncio.sleep(0)

    async def send(self, call: Call) -> Answer:
        if self._ahead is not None and self._ahead[0] is call:
            (_, task), self._ahead = self._ahead, None
            response = await task
        else:
            self.close()
            response = await self._begin(call)
        self._response = response
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, headers, call.url)

    async def _begin(self, call: Call) -> aiohttp.ClientResponse:
        """The answer to a request, once its head is there."""
        self._url = call.url
        if self._session is None:
            # The same one for a whole flow: if the client is closed meanwhile, the flow ends.
            self._session = self._shell.session()
        if self._session.closed:
            raise RuntimeError("the AsyncClient was closed while this was under way")
        idle_s = call.idle_s or self._shell.timeout_s
        try:
            if len(call.body) <= LARGE_BYTES:
                return await self._request(self._session, call, idle_s, call.body or None)
            return await self._upload(self._session, call, idle_s)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(call.url, _reason(error), False) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(call.url, _reason(error)) from error

    async def _request(
        self, session: aiohttp.ClientSession, call: Call, idle_s: float, data: Any
    ) -> aiohttp.ClientResponse:
        timeout = aiohttp.ClientTimeout(None, sock_connect=self._shell.timeout_s, sock_read=idle_s)
        return await session.request(
            call.method,
            # As it is: it is encoded already.
            URL(call.url, encoded=True),
            headers=call.headers,
            data=data,
            timeout=timeout,
            allow_redirects=False,
        )

    async def _upload(
        self, session: aiohttp.ClientSession, call: Call, idle_s: float
    ) -> aiohttp.ClientResponse:
        """A large body, piece by piece: aiohttp by itself waits for ever for who does not read."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(idle_s) as deadline:

            async def pieces() -> AsyncIterator[bytes]:
                for at in range(0, len(call.body), PIECE_BYTES):
                    deadline.reschedule(loop.time() + idle_s)
                    yield call.body[at : at + PIECE_BYTES]
                deadline.reschedule(loop.time() + idle_s)

            headers = {**call.headers, "content-length": str(len(call.body))}
            return await self._request(session, replace(call, headers=headers), idle_s, pieces())

    async def read(self, *, all_of_it: bool) -> bytes:
        """The rest of the answer, or what comes next of it."""
        if self._response is None:
            return b""
        try:
            if all_of_it:
                return await self._response.read()
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.close()
            raise Unreachable(self._url, _reason(error)) from error

    def close(self) -> None:
        """Whatever is left of an answer is not wanted."""
        if self._response is not None:
            if self._response.content.at_eof():
                # All of it was read: the connection can be used again.
                self._response.release()
            else:
                self._response.close()
            self._response = None
        if self._ahead is not None:
            self._ahead[1].add_done_callback(_drop)
            self._ahead[1].cancel()
            self._ahead = None


def _drop(task: "asyncio.Task[aiohttp.ClientResponse]") -> None:
    """An answer that nobody waits for any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


class AsyncShell:
    """Performs effects by awaiting them."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def session(self) -> aiohttp.ClientSession:
        """Made with the first request: it belongs to the loop that makes it."""
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise RuntimeError("this AsyncClient is closed")
        if self._session is None:
            # Each tail holds one: with a limit, those would keep everything else from running.
            connector = aiohttp.TCPConnector(limit=0)
            # As the blocking shell: to decompress costs more than it saves on a fast network.
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
        async with aclosing(self._drive(flow, result.append)) as drive:
            async for _ in drive:
                raise AssertionError("this flow gives items")
        return result[0]

    def iterate(self, items: Items[T]) -> AsyncGenerator[T, None]:
        """Drive a flow, and hand out what it gives."""
        # Not by a generator around another: to close the outer one would leave the inner one open.
        return self._drive(items.flow, lambda _: None)

    async def _drive(
        self, flow: Flow[Any], done: Callable[[Any], None]
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
                try:
                    outcome = await _perform(effect, exchange)
                except Exception as failed:
                    # Not only `Unreachable`: something of the user's may have failed as well.
                    error = failed
        finally:
            flow.close()
            exchange.close()


async def _perform(effect: Effect, exchange: _Exchange) -> Any:
    match effect:
        case Send(call):
            return await exchange.send(call)
        case Ahead(call):
            await exchange.ahead(call)
            return None
        case Body():
            return await exchange.read(all_of_it=True)
        case Piece():
            return await exchange.read(all_of_it=False)
        case Wait(seconds):
            await asyncio.sleep(seconds)
            return None
        case Value(source):
            value = source()
            return await value if inspect.isawaitable(value) else value
    raise AssertionError(f"unknown effect {effect!r}")


class AsyncHandle(Generic[F_co]):
    """What stands for something on a server: its flows, and the shell that performs them."""

    def __init__(self, shell: AsyncShell, flows: F_co, options: Options) -> None:
        self._shell = shell
        self._flows = flows
        self._options = options


def runs(
    flow: Callable[Concatenate[F_co, P], Flow[T]],
) -> "Callable[Concatenate[AsyncHandle[F_co], P], Coroutine[Any, Any, T]]":
    """A method that does what a flow says."""

    @wraps(flow)
    async def method(self: "AsyncHandle[F_co]", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._shell.run(flow(self._flows, *args, **kwargs))

    return method


def iterates(
    flow: Callable[Concatenate[F_co, P], Items[T]],
) -> "Callable[Concatenate[AsyncHandle[F_co], P], AsyncGenerator[T, None]]":
    """A method that iterates over what a flow gives."""

    @wraps(flow)
    def method(
        self: "AsyncHandle[F_co]", /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        return self._shell.iterate(flow(self._flows, *args, **kwargs))

    return method
