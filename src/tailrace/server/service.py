"""
The service: a parsed request in, a response out, now or later. It knows no socket.

It finds the route of a request, has the guard check it, and calls the handler. Refusals become
`application/problem+json`. All transports drive it, so all behave the same.
"""

import asyncio
import time
from collections.abc import Coroutine
from functools import partial
from operator import attrgetter
from typing import Any, Final

import structlog

from tailrace.engine.engine import Engine
from tailrace.engine.errors import StorageDamaged
from tailrace.protocol.cursor import parse_cursor
from tailrace.protocol.errors import (
    HeaderInvalid,
    NameInvalid,
    OffsetBeyondTail,
    OffsetMisaligned,
    QueryInvalid,
    Refusal,
)
from tailrace.protocol.names import NO_BUCKET, RESERVED
from tailrace.server import headers as h
from tailrace.server.conditions import conditional
from tailrace.server.errors import Internal, MethodNotAllowed
from tailrace.server.guard.guard import Guard
from tailrace.server.handlers.admin.backup import BackupHandler
from tailrace.server.handlers.admin.overview import OverviewHandlers
from tailrace.server.handlers.admin.status import StatusHandlers
from tailrace.server.handlers.bootstrap import BootstrapHandler
from tailrace.server.handlers.buckets import BucketHandlers
from tailrace.server.handlers.bulk.offsets import OffsetsHandler
from tailrace.server.handlers.bulk.rows import RowsHandler
from tailrace.server.handlers.reads import (
    ReadHandlers,
    ReadStart,
    parse_bytes_max,
    parse_last_event_id,
    parse_read_start,
    parse_until,
)
from tailrace.server.handlers.snapshots import SnapshotHandlers
from tailrace.server.handlers.subscriptions.leases import LeaseHandlers
from tailrace.server.handlers.subscriptions.manage import SubscriptionHandlers
from tailrace.server.handlers.ui import UiHandler
from tailrace.server.handlers.writes import WriteHandlers
from tailrace.server.live import Live
from tailrace.server.message import BodySink, Reply, Request, Response, Waiting
from tailrace.server.observability.metrics import Metrics
from tailrace.server.problem import problem
from tailrace.server.routing.query import READ_QUERY, parse_query
from tailrace.server.routing.routes import APPEND, BUCKET, LISTING, READ_STREAM, ROUTES, Endpoint
from tailrace.server.routing.target import (
    SHORT_BYTES_MAX,
    STREAM_PREFIX,
    UNRESOLVED,
    resolve,
    resolve_short,
)
from tailrace.server.settings import Settings
from tailrace.server.subscriptions.owners import Owners
from tailrace.server.subscriptions.secrets import SubscriptionSecrets
from tailrace.server.subscriptions.webhook_sender import WebhookSender

__all__ = ["Service", "clock_ms"]

_BASE_SURFACE: Final = (
    ". This is a bucket. Streams of the base protocol are at /v1/stream/{path}: give the client "
    "that URL"
)
_WRITES: Final = ("PUT", "POST", "DELETE")
_SINGLE_HEADERS: Final = frozenset(
    (
        b"content-type", b"stream-ttl", b"stream-expires-at", b"stream-closed", b"stream-seq",
        b"producer-id", b"producer-epoch", b"producer-seq", b"stream-forked-from",
        b"stream-fork-offset", b"stream-fork-sub-offset",
    )
)  # fmt: skip

log = structlog.get_logger("tailrace")


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


class _TaskHandle:
    """A task that makes a response; it ends by itself, even if its client sends nothing more."""

    endless = False

    def __init__(self, task: "asyncio.Task[Response]") -> None:
        self._task = task

    def cancel(self) -> None:
        self._task.cancel()


class Service:
    """The handlers of one server, and what every request passes before and after them."""

    def __init__(self, engine: Engine, settings: Settings, guard: Guard | None = None) -> None:
        self.engine = engine
        self.settings = settings
        self._root = settings.stream_root.encode()
        self._lenient = settings.offsets == "lenient"
        self.guard = guard = Guard(settings) if guard is None else guard
        shared = guard.access is None
        self.reads = ReadHandlers(
            engine, settings.chunk_bytes, settings.read_bytes_max, shared=shared
        )
        self.live = Live(
            engine,
            self.reads,
            guard,
            clock=clock_ms,
            chunk_bytes=settings.chunk_bytes,
            long_poll_s=settings.long_poll_s,
            sse_s=settings.sse_s,
        )
        self.metrics = Metrics(engine, self.live, settings)
        self.writes = WriteHandlers(engine, settings.stream_root.encode())
        self.buckets = BucketHandlers(engine)
        self.snapshots = SnapshotHandlers(engine, settings.snapshot_bytes_max, shared=shared)
        self.bootstrap = BootstrapHandler(engine, shared=shared)
        secrets = SubscriptionSecrets(engine.subscriptions, clock_ms)
        self._owners = Owners(guard.access, clock_ms)
        self.subscriptions = SubscriptionHandlers(
            engine.subscriptions,
            secrets,
            self._owners,
            settings.public_url,
            settings.webhook_networks,
        )
        self.leases = LeaseHandlers(engine.subscriptions, secrets, self.subscriptions)
        self.offsets = OffsetsHandler(engine)
        self.rows = RowsHandler(engine, guard.access)
        self.overview = OverviewHandlers(engine)
        self.backup = BackupHandler(engine)
        self.status = StatusHandlers(engine, self.live, self.metrics)
        self.ui = UiHandler()
        self._append = self.writes.append
        self._handlers = {
            endpoint: attrgetter(endpoint.handler)(self)
            for route in ROUTES
            for endpoint in route.endpoints.values()
        }
        self._tasks: set[asyncio.Task[Response]] = set()
        self._loop = asyncio.get_running_loop()
        self._use_quotas()
        if guard.access is not None:
            engine.subscriptions.set_readable(self._owners.readable)
            engine.subscriptions.set_may_append(self._owners.may_append)
            # Called by the thread that fetches the keys of JWTs.
            guard.access.on_change = partial(self._loop.call_soon_threadsafe, self._review_readers)

        self._webhooks = WebhookSender(
            engine.subscriptions,
            secrets,
            self._owners,
            settings.webhook_networks,
            self.metrics.webhooks,
        )

    def handle(self, request: Request, reply: Reply) -> Waiting | None:
        """
        Respond to a request through `reply`, once, at once or later.

        Returns what to cancel if the peer goes away before a later response.
        """
        # Not the loop's clock: uvloop's does not advance within a turn, and an append is often
        # done in one.
        request.started = time.monotonic()
        try:
            try:
                if request.repeated is not None:
                    _check_single(request.repeated)
                target = request.target
                if target is UNRESOLVED:
                    path = request.path
                    target = request.target = (
                        resolve_short(path, self._root)
                        if len(path) <= SHORT_BYTES_MAX
                        else resolve(path, self._root)
                    )
            except Refusal:
                if self.guard.guarded:
                    self.guard.count_refused(request)
                raise
            route = target.route
            endpoint = route.endpoints.get(request.method)
            # Before the checks: a refusal is counted by its operation as well.
            request.operation = (endpoint is not None and endpoint.metric) or route.name
            if self.guard.guarded:
                self.guard.admit(request)
            headers = request.headers
            if b"if-none-match" in headers or b"if-match" in headers:
                reply = conditional(request.method, headers, endpoint, reply)
            if endpoint is APPEND:
                self._append(request, reply)
                return None
            if endpoint is READ_STREAM:
                return self.read(request, reply)
            return self._dispatch(request, endpoint, reply)
        except Exception as error:
            self._refuse(request, error, reply)
        return None

    def receive(self, request: Request, *, first: bool, large: bool) -> BodySink | None:
        """
        Return the sink for the body of a request that has just begun, or None to collect it.

        `first`: all earlier requests have their responses. Then a `large` body is checked before
        it is sent.

        Raises:
            Refusal: The body need not be sent.
        """
        if not self.guard.guarded and (
            request.method != "PUT" or request.path.startswith(STREAM_PREFIX)
        ):
            return None
        path = request.path
        try:
            request.target = target = (
                resolve_short(path, self._root)
                if len(path) <= SHORT_BYTES_MAX
                else resolve(path, self._root)
            )
        except Refusal:
            # `handle` responds with it once the request is complete.
            return None
        endpoint = target.route.endpoints.get(request.method)
        is_upload = endpoint is not None and endpoint.upload
        if large or is_upload:
            # Reject before the body is read.
            self.guard.check(request)
        if large and first:
            self.guard.check_length(request)
        if not is_upload:
            return None
        conditional(request.method, request.headers, endpoint, lambda _: None)
        try:
            if first and large:
                self.snapshots.check(request)
            return self.snapshots.upload(request, first=first)
        except Refusal:
            raise
        except Exception as error:
            log.exception("request failed", method=request.method)
            raise Internal from error

    def read(self, request: Request, reply: Reply) -> Waiting | None:
        """§5.6–§5.8: a read, which may be live."""
        query = parse_query(request.query, READ_QUERY)
        mode = query.get("live", "false")
        if mode not in ("false", "long-poll", "sse"):
            raise QueryInvalid("live", "must be long-poll, sse or false")
        # Clients of the base protocol compute offsets; those of buckets use them as returned.
        lenient = self._lenient and request.target.key.startswith(NO_BUCKET)
        position = parse_read_start(query, live=mode != "false", lenient=lenient)
        if mode == "sse" and (last_id := request.headers.get(b"last-event-id")):
            # A browser that reconnects repeats the URL of its first request.
            position = parse_last_event_id(last_id)
        until = parse_until(query, live=mode != "false")
        bytes_max = parse_bytes_max(query, live=mode != "false")
        cursor = parse_cursor(query.get("cursor", "")) if mode != "false" else None
        stream = self.engine.find(request.target.key)
        self.engine.touch(stream)
        if mode != "false":
            request.operation = mode

        def respond(position: ReadStart) -> Waiting | None:
            if mode == "long-poll":
                return self.live.long_poll(request, stream, position, cursor, reply)
            if mode == "sse":
                reply(self.live.sse(request, stream, position, cursor))
            else:
                self.reads.catch_up(
                    request, stream, position, reply, until=until, bytes_max=bytes_max
                )
            return None

        try:
            return respond(position)
        except (OffsetMisaligned, OffsetBeyondTail):
            if not lenient or position.offset is None:
                raise
            # Only now: to align an offset takes a read.
            offset = self.engine.align(stream, position.offset)
            return respond(position._replace(offset=offset))

    def drain(self) -> None:
        """The server stops: end waiting readers, and fail `/-/ready`."""
        self.live.drain()

    def reload(self) -> None:
        """Read access and limits again; end readers whose rights have changed."""
        self.guard.reload()
        self._use_quotas()
        self._review_readers()
        if self.guard.access is not None:
            self._owners.changed()
            self.engine.subscriptions.set_readable(self._owners.readable)

    async def close(self) -> None:
        """All connections are closed: cancel the tasks that still work for one."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._webhooks.close()
        self.guard.close()
        await self.metrics.close()

    def _dispatch(
        self, request: Request, endpoint: Endpoint | None, reply: Reply
    ) -> Waiting | None:
        """Call the handler of any request but an append or a read of a stream."""
        if endpoint is None:
            reply(_without_endpoint(request))
            return None
        if request.target.route.same_origin:
            self.guard.check_origin(request)
        handler = self._handlers[endpoint]
        if endpoint.replies:
            handler(request, reply)
            return None
        made = handler(request)
        if isinstance(made, Response):
            reply(made)
            return None
        task = self._reply_later(made, request, reply)
        # Like an append, an upload is stored even if its client goes away.
        return None if endpoint.upload else task

    def _reply_later(
        self, work: Coroutine[Any, Any, Response], request: Request, reply: Reply
    ) -> _TaskHandle:
        """Respond with what a coroutine returns, or raises."""
        task = self._loop.create_task(work)
        # The loop itself does not keep a task alive.
        self._tasks.add(task)

        def done(task: asyncio.Task[Response]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                if request.sink is not None:
                    request.sink.cancel()
                return
            error = task.exception()
            if error is None:
                reply(task.result())
            else:
                self._refuse(request, error, reply)

        task.add_done_callback(done)
        return _TaskHandle(task)

    def _refuse(self, request: Request, error: BaseException, reply: Reply) -> None:
        """Respond with a refusal. Any other error is logged, and the response is a 500."""
        if request.sink is not None:
            request.sink.cancel()
        if isinstance(error, StorageDamaged):
            log.error("stored data cannot be read: check the disk", detail=error.detail)
        if not isinstance(error, Refusal):
            log.error("request failed", method=request.method, exc_info=error)
            error = Internal()
        reply(problem(error, subscriptions=request.target.route.subscriptions))

    def _review_readers(self) -> None:
        """End waiting readers whose credentials are no longer valid."""
        if self.guard.access is not None:
            self.live.review(self.guard.access.is_valid)

    def _use_quotas(self) -> None:
        quotas = self.guard.limits.quotas
        self.engine.quota = quotas.check if quotas else None


def _check_single(repeated: frozenset[bytes]) -> None:
    for name in sorted(repeated & _SINGLE_HEADERS):
        raise HeaderInvalid(name.decode().title(), "must be given once")


def _without_endpoint(request: Request) -> Response:
    """Respond to OPTIONS; refuse a method that the route does not have."""
    if request.method == "OPTIONS":
        return Response(204, h.preflight(request.headers.get(b"access-control-request-headers")))
    route = request.target.route
    if route is LISTING and request.method in _WRITES:
        # The client means a stream of this name, which X§1.1 reserves.
        raise NameInvalid(RESERVED)
    # A client that was given a bare host as its root takes a bucket for a stream.
    advice = _BASE_SURFACE if route is BUCKET else ""
    raise MethodNotAllowed(request.method, route.allowed, advice)
