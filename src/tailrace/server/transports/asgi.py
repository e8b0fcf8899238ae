"""
The service as an ASGI app: mount it in FastAPI or Starlette, or run it under any ASGI server.

    streams = create_app()
    app = FastAPI(lifespan=streams.lifespan)
    app.mount("/streams", streams)

Frameworks do not pass their lifespan on to mounted apps, hence the second line. Without it the
store opens with the first request, and closes with the process, which loses nothing: acknowledged
data is on disk.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

import structlog

from tailrace.engine.engine import Engine
from tailrace.protocol.errors import Refusal
from tailrace.server.errors import BodyIncomplete, MalformedRequest
from tailrace.server.headers import COMMON
from tailrace.server.lifecycle import open_store
from tailrace.server.message import WRITE_STALL_S, Frame, LiveBody, Request, Response
from tailrace.server.problem import problem
from tailrace.server.service import Service, clock_ms
from tailrace.server.settings import Settings, load_settings
from tailrace.server.transports.asgi_body import Receive, collect_body, stream_body
from tailrace.server.transports.asgi_hosts import StopSignals, cut_connection, keep_trailers_apart
from tailrace.server.transports.framing import check_framing, check_sizes

__all__ = ["TailraceApp", "create_app"]

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_BUFFER_BYTES_HIGH: Final = 256 << 10
# Each has a deadline: larger ones would take a slow client for one that does not read.
_PIECE_BYTES: Final = 64 << 10
_VERSIONS: Final = ("1.0", "1.1", "2", "3")
_CLOSE: Final = (b"connection", b"close")

log = structlog.get_logger("tailrace")


def create_app(settings: Settings | None = None) -> "TailraceApp":
    """
    Return an ASGI app that serves streams.

    Without settings it reads the `TAILRACE_*` variables. Those about listening and logging have no
    effect: they are up to the hosting server.

    Raises:
        SettingsError: A variable has an invalid value.
    """
    return TailraceApp(load_settings() if settings is None else settings)


class TailraceApp:
    """An ASGI app with one store, opened in the event loop that first calls it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._service: Service | None = None
        self._signals: StopSignals | None = None
        # When requests in flight are cut off; known once the server is told to stop.
        self._deadline: float | None = None
        self._limits: set[asyncio.Timeout] = set()
        keep_trailers_apart()

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Open the store before the first request, and close it after the last."""
        self._open()
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """End waiting readers, commit what is pending, close the store."""
        service, self._service = self._service, None
        if self._signals is not None:
            self._signals.restore()
        if service is not None:
            service.drain()
            await service.close()
            await service.engine.close()

    def reload(self) -> None:
        """Read access and limits again, as the server does at SIGHUP."""
        if self._service is not None:
            self._service.reload()

    def _open(self) -> Service:
        if self._service is None:
            engine = Engine(
                open_store(self.settings),
                clock=clock_ms,
                sliding=self.settings.ttl == "sliding",
                on_failure=lambda error: log.error(
                    "storage failed: restart the process", error=str(error)
                ),
            )
            self._service = Service(engine, self.settings)
            self._deadline = None
            self._signals = StopSignals(self._stop)
            self._signals.watch()
        return self._service

    def _stop(self) -> None:
        """The server is told to stop: end waiting readers, and others after `drain_s`."""
        if self._service is None or self._deadline is not None:
            return
        self._service.drain()
        self._deadline = asyncio.get_running_loop().time() + self.settings.drain_s
        for limit in self._limits:
            limit.reschedule(self._deadline)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                async with asyncio.timeout_at(self._deadline) as limit:
                    self._limits.add(limit)
                    try:
                        await self._http(scope, receive, _with_deadline(send))
                    finally:
                        self._limits.discard(limit)
            except (_AbortedError, TimeoutError):
                if not cut_connection(receive):
                    # The server closes the connection, and does not complete the response.
                    raise
                # The server notices before the app returns.
                await asyncio.sleep(0)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000, "reason": "HTTP only"})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            self._open()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._open()
        close = False
        try:
            request = _request(scope)
            # The hosting server may have lost what follows such a head.
            close = b"upgrade" in request.headers
            if request.method in ("PUT", "POST"):
                request.sink = service.receive(request, first=True, large=True)
            if request.sink is not None:
                complete = await stream_body(request, request.sink, receive)
            else:
                complete = await collect_body(request, receive, self.settings.body_bytes_max)
        except Refusal as refusal:
            service.metrics.count_refusal(refusal.code)
            close = close or isinstance(refusal, BodyIncomplete)
            await _send_whole(scope, send, problem(refusal), close=close)
            return
        if not complete:
            # The peer went away before its request was complete.
            return
        replied: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def reply(response: Response) -> None:
            if not replied.done():
                replied.set_result(response)
            elif response.live is not None:
                response.live.cancel()

        waiting = service.handle(request, reply)
        if waiting is not None:
            try:
                await _wait_for_response(replied, receive)
            finally:
                if not replied.done():
                    waiting.cancel()
                    # A response that is already made is released by `reply`.
                    replied.cancel()
            if replied.cancelled():
                return
        try:
            response = await replied
            service.metrics.count_response(request, response)
        except asyncio.CancelledError:
            if not replied.cancelled() and (live := replied.result().live) is not None:
                live.cancel()
            raise
        close = close or service.live.draining
        if response.live is None:
            await _send_whole(scope, send, response, close=close)
        else:
            start = _start(scope, response, length=False, close=close)
            await _LiveResponse(response.live).run(start, receive, send)


class _AbortedError(Exception):
    """The response cannot be completed."""


def _with_deadline(send: Send) -> Send:
    """Make `send` give up a client that does not read."""

    async def send_in_time(message: MutableMapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(WRITE_STALL_S):
                await send(message)
        except TimeoutError:
            raise _AbortedError("the client does not read") from None

    return send_in_time


class _AsgiRequest(Request):
    """A request with the scheme and the mount prefix of its scope."""

    __slots__ = ("prefix", "scheme")


def _request(scope: Scope) -> Request:
    """Make a request from the scope; its body is still to come."""
    headers: dict[bytes, bytes] = {}
    repeated: set[bytes] = set()
    for name, raw in scope["headers"]:
        key, value = name.lower(), raw.rstrip(b" \t")
        if key in headers:
            repeated.add(key)
            value = headers[key] + b", " + value
        headers[key] = value
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = path.partition(b"?")[0]
    version = scope.get("http_version", "1.1")
    if version == "1":
        # As granian spells it.
        version = "1.0"
    if version not in _VERSIONS:
        raise MalformedRequest(f"HTTP/{version} is not supported, use 1.1")
    names = frozenset(repeated) or None
    refusal = check_sizes(
        len(path) + len(scope["query_string"]), headers, len(scope["headers"])
    ) or check_framing(headers, names, version)
    if refusal is not None:
        raise refusal
    prefix = quote(scope.get("root_path", "")).encode().rstrip(b"/")
    if prefix and path.startswith(prefix):
        path = path[len(prefix) :]
    if not path.startswith(b"/"):
        raise MalformedRequest("the request target is not a path")
    request = _AsgiRequest(scope["method"].upper(), path, scope["query_string"], headers, b"")
    request.address = (scope.get("client") or ("",))[0]
    request.scheme = scope.get("scheme", "http").encode()
    request.prefix = prefix
    request.repeated = names
    return request


async def _wait_for_response(replied: "asyncio.Future[Response]", receive: Receive) -> None:
    """Wait for the response, or until the peer goes away."""
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((replied, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _start(
    scope: Scope, response: Response, *, length: bool, close: bool
) -> MutableMapping[str, Any]:
    headers = [(name.lower(), value) for name, value in (*COMMON, *response.headers)]
    if response.length is not None:
        headers.append((b"content-length", b"%d" % response.length))
    elif length and response.status not in (204, 304):
        headers.append((b"content-length", b"%d" % len(response.body)))
    if close and scope.get("http_version", "1.1").startswith("1"):
        # Later versions have no such header.
        headers.append(_CLOSE)
    return {"type": "http.response.start", "status": response.status, "headers": headers}


async def _send_whole(scope: Scope, send: Send, response: Response, *, close: bool) -> None:
    # A response to HEAD has no body and no length.
    head = scope["method"] == "HEAD"
    await send(_start(scope, response, length=not head, close=close))
    await _send_body(send, b"" if head else response.body, more=False)


async def _send_body(send: Send, data: bytes, *, more: bool) -> None:
    for start in range(0, len(data) or 1, _PIECE_BYTES):
        end = start + _PIECE_BYTES
        more_body = more or end < len(data)
        await send({"type": "http.response.body", "body": data[start:end], "more_body": more_body})


class _LiveResponse:
    """A live response: the session writes frames, a task sends them as the peer reads."""

    def __init__(self, live: LiveBody) -> None:
        self._live = live
        self._frames: deque[bytes | memoryview] = deque()
        self._bytes = 0
        self._finished = self._aborted = False
        self._wake = asyncio.Event()

    @property
    def blocked(self) -> bool:
        return self._bytes >= _BUFFER_BYTES_HIGH

    def write_frame(self, frame: Frame) -> None:
        self._frames.append(frame.data)
        self._bytes += len(frame.data)
        self._wake.set()

    def finish(self) -> None:
        self._finished = True
        self._wake.set()

    def abort(self) -> None:
        self._aborted = True
        self._wake.set()

    async def run(self, start: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        tasks: list[asyncio.Future[None]] = []
        try:
            await send(start)
            self._live.start(self)
            tasks = [
                asyncio.ensure_future(_gone(receive)),
                asyncio.ensure_future(self._send(send)),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._live.cancel()
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await task

    async def _send(self, send: Send) -> None:
        while True:
            while self._frames and not self._aborted:
                data = b"".join(self._frames)
                self._frames.clear()
                await _send_body(send, data, more=True)
                blocked = self.blocked
                self._bytes = sum(map(len, self._frames))
                if blocked and not self.blocked:
                    self._live.drained()
            if self._aborted:
                raise _AbortedError("the body cannot be completed")
            if self._finished:
                await _send_body(send, b"", more=False)
                return
            self._wake.clear()
            await self._wake.wait()
