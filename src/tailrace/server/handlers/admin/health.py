"""`/-/…`: what is ours and not the protocol's."""

from collections.abc import Coroutine
from typing import Any

import msgspec

from tailrace.engine.core import Engine
from tailrace.server import headers as h
from tailrace.server.errors import NotReady, RouteNotFound
from tailrace.server.guard.guard import Doors
from tailrace.server.handlers.admin.backup import Backup
from tailrace.server.handlers.admin.overview import Overview
from tailrace.server.handlers.bulk.offsets import Offsets
from tailrace.server.handlers.bulk.rows import Rows
from tailrace.server.handlers.ui import Ui
from tailrace.server.live import Live
from tailrace.server.message import Request, Response
from tailrace.server.observability.metrics import Metrics
from tailrace.server.routing.target import Resource
from tailrace.server.settings import Settings

__all__ = ["Own", "bodiless"]


def bodiless(request: Request, response: Response) -> Response:
    """The same without its body, where it was asked for by HEAD."""
    if request.method == "HEAD":
        response.body = b""
    return response


class Own:
    """Answers to what operators, Spark and the page ask for."""

    def __init__(
        self, engine: Engine, settings: Settings, doors: Doors, live: Live, metrics: Metrics
    ) -> None:
        self._engine = engine
        self._live = live
        self._metrics = metrics
        self._offsets = Offsets(engine)
        self._rows = Rows(engine, doors.access)
        self._overview = Overview(engine)
        self._backup = Backup(engine, settings)
        self._ui = Ui()

    def answer(
        self, request: Request, resource: Resource
    ) -> Response | Coroutine[Any, Any, Response]:
        """An answer, or what makes one."""
        match resource:
            case Resource.OFFSETS:
                return self._offsets.answer(request)
            case Resource.ROWS:
                return self._rows.answer(request)
            case Resource.BUCKETS:
                return self._overview.buckets(request)
            case Resource.PATHS:
                return self._overview.paths(request)
            case Resource.ABOUT:
                return self._overview.about(request)
            case Resource.BACKUP:
                return self._backup.answer(request)
            case Resource.METRICS:
                return self._scrape(request)
            case Resource.UI:
                return self._ui.answer(request)
        return self._health(request)

    async def _scrape(self, request: Request) -> Response:
        content_type, body = await self._metrics.scrape(request.headers.get(b"accept", b""))
        headers = [(h.CONTENT_TYPE, content_type), h.NO_STORE, (b"Vary", b"Accept")]
        return bodiless(request, Response(200, headers, body))

    def _health(self, request: Request) -> Response:
        if request.path not in (b"/-/health", b"/-/ready"):
            raise RouteNotFound
        if request.path == b"/-/ready":
            self._check_ready()
        body = msgspec.json.encode({"status": "ok"})
        headers = [(h.CONTENT_TYPE, b"application/json"), h.NO_STORE]
        return bodiless(request, Response(200, headers, body))

    def _check_ready(self) -> None:
        if self._engine.failure is not None:
            raise NotReady("storage failed: the server takes no more writes and must be restarted")
        if self._live.draining:
            raise NotReady("the server is stopping")
