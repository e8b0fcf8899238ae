"""
The service: a parsed request in, an answer out, now or later. It knows no socket.

It maps requests to commands and reads, outcomes to status, headers and body, and refusals to
`application/problem+json`. Both transports drive it, so both behave the same.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from tailrace.engine.core import Engine
from tailrace.engine.errors import StorageDamaged
from tailrace.protocol.cursor import parse_cursor
from tailrace.protocol.errors import HeaderInvalid, NameInvalid, QueryInvalid, Refusal
from tailrace.protocol.names import RESERVED
from tailrace.server import headers as h
from tailrace.server.errors import Internal, MethodNotAllowed
from tailrace.server.guard.guard import Doors
from tailrace.server.handlers.admin.health import Own, bodiless
from tailrace.server.handlers.bootstrap import Bootstrap
from tailrace.server.handlers.buckets import BucketRequests
from tailrace.server.handlers.reads import Reads, parse_until, parse_where
from tailrace.server.handlers.snapshots import Snapshots
from tailrace.server.handlers.writes import Writes
from tailrace.server.live import Live
from tailrace.server.message import BodySink, Request, Response, Waiting
from tailrace.server.observability.metrics import open_metrics
from tailrace.server.problem import problem
from tailrace.server.routing.target import (
    READ_QUERY,
    SHORT_BYTES_MAX,
    STREAM_PREFIX,
    Resource,
    Target,
    parse_query,
    resolve,
    resolve_short,
)
from tailrace.server.settings import Settings

__all__ = ["Service", "clock_ms"]

_STREAM_METHODS: Final = "GET, HEAD, PUT, POST, DELETE, OPTIONS"
_STREAM: Final = Resource.STREAM
_WRITES: Final = ("PUT", "POST", "DELETE")
_SINGLE_HEADERS: Final = frozenset(
    (
        b"content-type", b"stream-ttl", b"stream-expires-at", b"stream-closed", b"stream-seq",
        b"producer-id", b"producer-epoch", b"producer-seq",
    )
)  # fmt: skip
_METHODS: Final = {
    Resource.BUCKET: ("GET", "HEAD", "PUT", "DELETE"),
    Resource.LISTING: ("GET", "HEAD"),
    Resource.LATEST: ("GET", "HEAD"),
    Resource.SNAPSHOT: ("GET", "HEAD", "PUT", "DELETE"),
    Resource.BOOTSTRAP: ("GET", "HEAD"),
    Resource.OFFSETS: ("POST",),
    Resource.ROWS: ("POST",),
    Resource.BUCKETS: ("GET", "HEAD"),
    Resource.PATHS: ("GET", "HEAD"),
    Resource.ABOUT: ("GET", "HEAD"),
    Resource.METRICS: ("GET", "HEAD"),
    Resource.BACKUP: ("POST",),
    Resource.UI: ("GET", "HEAD"),
    Resource.OWN: ("GET", "HEAD"),
}
_OPERATIONS: Final = {
    "POST": "append", "GET": "read", "HEAD": "head", "PUT": "create", "DELETE": "delete",
}  # fmt: skip

Reply = Callable[[Response], None]

log = structlog.get_logger("tailrace")


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _check_single(repeated: frozenset[bytes]) -> None:
    for name in sorted(repeated & _SINGLE_HEADERS):
        raise HeaderInvalid(name.decode().title(), "must be given once")


class _Work:
    """An answer that is being made: it comes, whether its client sends more or not."""

    endless = False

    def __init__(self, task: "asyncio.Task[Response]") -> None:
        self._task = task

    def cancel(self) -> None:
        self._task.cancel()


class Service:
    """One server's answers."""

    def __init__(self, engine: Engine, settings: Settings, doors: Doors | None = None) -> None:
        self.engine = engine
        self.settings = settings
        self.doors = doors = Doors(settings) if doors is None else doors
        shared = doors.access is None
        self._reads = Reads(engine, settings.chunk_bytes, shared=shared)
        self._writes = Writes(engine)
        self._buckets = BucketRequests(engine)
        self._snapshots = Snapshots(engine, settings.snapshot_bytes_max, shared=shared)
        self._bootstrap = Bootstrap(engine, shared=shared)
        self._tasks: set[asyncio.Task[Response]] = set()
        self._loop = asyncio.get_running_loop()
        self.live = Live(
            engine,
            self._reads,
            doors,
            clock=clock_ms,
            chunk_bytes=settings.chunk_bytes,
            long_poll_s=settings.long_poll_s,
            sse_s=settings.sse_s,
        )
        self.metrics = open_metrics(engine, self.live, settings)
        self._own = Own(engine, settings, doors, self.live, self.metrics)
        self._use_quotas()
        if doors.access is not None:
            doors.access.on_change = self._keys_changed

    def handle(self, request: Request, reply: Reply) -> Waiting | None:
        """
        Answer a request through `reply`, once, at once or later.

        Returns what to cancel if the peer goes away before a waiting answer came.
        """
        # Not the loop's: uvloop's clock stands still within a turn, and an append is often in one.
        request.started = time.monotonic()
        try:
            try:
                if request.repeated is not None:
                    _check_single(request.repeated)
                path = request.path
                target = resolve_short(path) if len(path) <= SHORT_BYTES_MAX else resolve(path)
            except Refusal:
                if self.doors.guarded:
                    self.doors.count_refused(request)
                raise
            # Before anything can refuse it: what is refused is counted by it too.
            request.operation = (
                _OPERATIONS.get(request.method, "unknown")
                if target.resource is _STREAM
                else target.resource.value
            )
            if self.doors.guarded:
                self.doors.admit(request, target)
            if target.resource is _STREAM:
                if request.method == "POST":
                    self._writes.append(request, target.key, reply)
                    return None
                return self._stream(request, target.key, reply)
            return self._other(request, target, reply)
        except Refusal as refusal:
            self._refuse(request, refusal, reply)
        except Exception:
            log.exception("request failed", method=request.method)
            self._refuse(request, Internal(), reply)
        return None

    def receive(self, request: Request, *, first: bool, large: bool) -> BodySink | None:
        """
        Where the body of a request goes that has just begun, if it is not to be collected.

        `first`: all before it are answered. Then a `large` one is refused now, if at all.

        Raises:
            Refusal: There is no need to send the body.
        """
        if not self.doors.guarded and (
            request.method != "PUT" or request.path.startswith(STREAM_PREFIX)
        ):
            return None
        path = request.path
        try:
            target = resolve_short(path) if len(path) <= SHORT_BYTES_MAX else resolve(path)
        except Refusal:
            # It is told when the request is complete, as to any other one.
            return None
        is_upload = target.resource is Resource.SNAPSHOT and request.method == "PUT"
        if large or is_upload:
            # Whoever may not send it, need not: nothing is kept of it.
            self.doors.check(request, target)
        if large and first:
            self.doors.check_length(request, target)
        if not is_upload:
            return None
        try:
            if first and large:
                self._snapshots.check(request, target.key, target.offset)
            return self._snapshots.upload(target.key, first=first)
        except Refusal:
            raise
        except Exception as error:
            log.exception("request failed", method=request.method)
            raise Internal from error

    def drain(self) -> None:
        """The server stops: waiting readers get their last word, `ready` says no."""
        self.live.drain()

    def reload(self) -> None:
        """Read access and limits anew; readers whose rights are not the same any more are ended."""
        self.doors.reload()
        self._use_quotas()
        self._review()

    def _keys_changed(self) -> None:
        """Keys of JWTs are fetched by a thread, which calls this."""
        self._loop.call_soon_threadsafe(self._review)

    def _review(self) -> None:
        """Access may have changed: end whoever waits with rights that are not what they were."""
        if self.doors.access is not None:
            self.live.review(self.doors.access.is_valid)

    def _use_quotas(self) -> None:
        quotas = self.doors.limits.quotas
        self.engine.quota = quotas.check if quotas else None

    def _refuse(self, request: Request, refusal: Refusal, reply: Reply) -> None:
        if request.sink is not None:
            request.sink.cancel()
        if isinstance(refusal, StorageDamaged):
            log.error("stored data cannot be read: check the disk", detail=refusal.detail)
        reply(problem(refusal, body=request.method != "HEAD"))

    async def close(self) -> None:
        """No connection is left: end what was still at work for one."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.doors.close()
        await self.metrics.close()

    def _later(
        self, work: Coroutine[Any, Any, Response], request: Request, reply: Reply
    ) -> "_Work":
        """Answer with what a coroutine returns, or raises."""
        task = asyncio.get_running_loop().create_task(work)
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
            elif isinstance(error, Refusal):
                self._refuse(request, error, reply)
            else:
                log.error("request failed", method=request.method, exc_info=error)
                self._refuse(request, Internal(), reply)

        task.add_done_callback(done)
        return _Work(task)

    def _stream(self, request: Request, key: bytes, reply: Reply) -> Waiting | None:
        method = request.method
        if method == "GET":
            return self._read(request, key, reply)
        elif method == "PUT":
            self._writes.create(request, key, reply)
        elif method == "HEAD":
            reply(self._reads.head(self.engine.find(key)))
        elif method == "DELETE":
            self._writes.delete(key, reply)
        elif method == "OPTIONS":
            reply(Response(204, h.PREFLIGHT))
        else:
            raise MethodNotAllowed(method, _STREAM_METHODS)
        return None

    def _other(self, request: Request, target: Target, reply: Reply) -> Waiting | None:
        """All but streams."""
        allowed = _METHODS[target.resource]
        if request.method == "OPTIONS":
            reply(Response(204, h.PREFLIGHT))
            return None
        if request.method not in allowed:
            if target.resource is Resource.LISTING and request.method in _WRITES:
                # Somebody wants a stream of this name, and X§1.1 reserves it.
                raise NameInvalid(RESERVED)
            raise MethodNotAllowed(request.method, ", ".join((*allowed, "OPTIONS")))
        self.doors.check_origin(request, target)
        key, offset = target.key, target.offset
        match target.resource, request.method:
            case Resource.BUCKET, "PUT":
                self._buckets.create(request, key, reply)
            case Resource.BUCKET, "DELETE":
                self._buckets.delete(key, reply)
            case Resource.BUCKET, _:
                reply(bodiless(request, self._buckets.describe(key)))
            case Resource.LISTING, _:
                return self._later(self._list(request, key), request, reply)
            case Resource.LATEST, _:
                reply(self._snapshots.latest(request, key))
            case Resource.SNAPSHOT, "PUT":
                # Not to be cancelled: like an append, it is stored whoever hears of it.
                self._later(self._snapshots.publish(request, key, offset), request, reply)
            case Resource.SNAPSHOT, "DELETE":
                reply(self._snapshots.delete(request, key, offset))
            case Resource.SNAPSHOT, _:
                reply(self._snapshots.read(request, key, offset))
            case Resource.BOOTSTRAP, _:
                return self._later(self._bootstrap.answer(request, key), request, reply)
            case _:
                made = self._own.answer(request, target.resource)
                if not isinstance(made, Response):
                    return self._later(made, request, reply)
                reply(made)
        return None

    async def _list(self, request: Request, key: bytes) -> Response:
        return bodiless(request, await self._buckets.list(request, key))

    def _read(self, request: Request, key: bytes, reply: Reply) -> Waiting | None:
        query = parse_query(request.query, READ_QUERY)
        mode = query.get("live", "false")
        if mode not in ("false", "long-poll", "sse"):
            raise QueryInvalid("live", "must be long-poll, sse or false")
        where = parse_where(query, live=mode != "false")
        until = parse_until(query, live=mode != "false")
        cursor = parse_cursor(query.get("cursor", "")) if mode != "false" else None
        stream = self.engine.find(key)
        self.engine.touch(stream)
        if mode == "long-poll":
            request.operation = mode
            return self.live.long_poll(request, stream, where, cursor, reply)
        if mode == "sse":
            request.operation = mode
            reply(self.live.sse(request, stream, where, cursor))
        else:
            self._reads.answer(request, stream, where, reply, until=until)
        return None
