"""
The service: a parsed request in, an answer out, now or later. It knows no socket.

It maps requests to commands and reads, outcomes to status, headers and body, and refusals to
`application/problem+json`. Both transports drive it, so both behave the same.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from tailrace.engine.core import Engine
from tailrace.protocol.cursor import parse_cursor
from tailrace.protocol.errors import HeaderInvalid, QueryInvalid, Refusal
from tailrace.server import headers as h
from tailrace.server.errors import Internal, MethodNotAllowed, NotReady, RouteNotFound
from tailrace.server.live import Live
from tailrace.server.message import Request, Response, Waiting
from tailrace.server.problem import problem
from tailrace.server.reads import Reads, parse_where
from tailrace.server.settings import Settings
from tailrace.server.target import STREAM_PREFIX, parse_query, stream_key
from tailrace.server.writes import Writes

__all__ = ["Service", "clock_ms"]

_STREAM_METHODS: Final = "GET, HEAD, PUT, POST, DELETE, OPTIONS"
_SINGLE_HEADERS: Final = frozenset(
    (
        b"content-type", b"stream-ttl", b"stream-expires-at", b"stream-closed", b"stream-seq",
        b"producer-id", b"producer-epoch", b"producer-seq",
    )
)  # fmt: skip
_OWN_METHODS: Final = "GET, HEAD, OPTIONS"

Reply = Callable[[Response], None]

log = structlog.get_logger("tailrace")


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _check_single(repeated: frozenset[bytes]) -> None:
    for name in sorted(repeated & _SINGLE_HEADERS):
        raise HeaderInvalid(name.decode().title(), "must be given once")


class Service:
    """One server's answers."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.draining = False
        self._reads = Reads(engine, settings.chunk_bytes)
        self._writes = Writes(engine)
        self.live = Live(
            engine,
            self._reads,
            clock=clock_ms,
            chunk_bytes=settings.chunk_bytes,
            long_poll_s=settings.long_poll_s,
            sse_s=settings.sse_s,
        )

    def handle(self, request: Request, reply: Reply) -> Waiting | None:
        """
        Answer a request through `reply`, once, at once or later.

        Returns what to cancel if the peer goes away before a waiting answer came.
        """
        try:
            if request.repeated is not None:
                _check_single(request.repeated)
            if request.path.startswith(STREAM_PREFIX):
                if request.method == "POST":
                    self._writes.append(request, stream_key(request.path), reply)
                    return None
                return self._stream(request, reply)
            reply(self._own(request))
        except Refusal as refusal:
            reply(problem(refusal, body=request.method != "HEAD"))
        except Exception:
            log.exception("request failed", method=request.method)
            reply(problem(Internal()))
        return None

    def drain(self) -> None:
        """The server stops: waiting readers get their last word, `ready` says no."""
        self.draining = True
        self.live.drain()

    def _stream(self, request: Request, reply: Reply) -> Waiting | None:
        method = request.method
        key = stream_key(request.path)
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

    def _read(self, request: Request, key: bytes, reply: Reply) -> Waiting | None:
        query = parse_query(request.query)
        mode = query.get("live", "false")
        if mode not in ("false", "long-poll", "sse"):
            raise QueryInvalid("live", "must be long-poll, sse or false")
        where = parse_where(query, live=mode != "false")
        cursor = parse_cursor(query.get("cursor", "")) if mode != "false" else None
        stream = self.engine.find(key)
        self.engine.touch(stream)
        if mode == "long-poll":
            return self.live.long_poll(request, stream, where, cursor, reply)
        if mode == "sse":
            reply(self.live.sse(stream, where, cursor))
        else:
            self._reads.answer(request, stream, where, reply)
        return None

    def _own(self, request: Request) -> Response:
        """`/-/…`: what is ours and not the protocol's."""
        if request.method == "OPTIONS":
            return Response(204, h.PREFLIGHT)
        if request.path not in (b"/-/health", b"/-/ready"):
            raise RouteNotFound
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(request.method, _OWN_METHODS)
        if request.path == b"/-/ready":
            self._check_ready()
        body = b"" if request.method == "HEAD" else msgspec.json.encode({"status": "ok"})
        return Response(200, [(h.CONTENT_TYPE, b"application/json"), h.NO_STORE], body)

    def _check_ready(self) -> None:
        if self.engine.failure is not None:
            raise NotReady("storage failed: the server takes no more writes and must be restarted")
        if self.draining:
            raise NotReady("the server is stopping")
