"""`/-/health`, `/-/ready` and `/-/metrics`; and 404 for all other paths under `/-/`."""

from tailrace.engine.engine import Engine
from tailrace.server import headers as h
from tailrace.server.errors import NotReady, RouteNotFound
from tailrace.server.live import Live
from tailrace.server.message import Request, Response
from tailrace.server.observability.metrics import Metrics

__all__ = ["StatusHandlers"]


class StatusHandlers:
    """The state of a server, for its operators and their tools."""

    def __init__(self, engine: Engine, live: Live, metrics: Metrics) -> None:
        self._engine = engine
        self._live = live
        self._metrics = metrics

    def health(self, _request: Request) -> Response:
        """The process serves."""
        headers = [(h.CONTENT_TYPE, b"application/json"), h.NO_STORE]
        return Response(200, headers, b'{"status":"ok"}')

    def ready(self, request: Request) -> Response:
        """The server takes requests."""
        if self._engine.failure is not None:
            raise NotReady("storage failed: the server takes no more writes and must be restarted")
        if self._live.draining:
            raise NotReady("the server is stopping")
        return self.health(request)

    async def metrics(self, request: Request) -> Response:
        content_type, body = await self._metrics.scrape(request.headers.get(b"accept", b""))
        headers = [(h.CONTENT_TYPE, content_type), h.NO_STORE, (b"Vary", b"Accept")]
        return Response(200, headers, body)

    def unknown(self, _request: Request) -> Response:
        raise RouteNotFound
