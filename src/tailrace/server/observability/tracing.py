"""
Tracing of requests by OpenTelemetry: an optional extra, off unless `--traces` is given.

Rule 1: a span has the operation and its result, never data of clients: no query, no header, no
stream name and no content. The bucket is named, since buckets are few and chosen by the operator.

Rule 2: no request waits for a collector. Spans go into a bounded queue, and a thread sends them; if
the queue is full, they are dropped.

A span is made together with the response, with the arrival of the request as its start. So there is
no span to end if the client goes away first.

    append, read, …   one per request, a child of the span in the client's `traceparent`
    commit            one per group commit; the spans of its appends link to it

The variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT` and others) configure the export.
"""

import threading
import time
from typing import TYPE_CHECKING, Final

from tailrace import __version__
from tailrace.server.message import Request, Response
from tailrace.server.settings import SettingsError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource as OtelResource
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Link, SpanContext

    from tailrace.engine.commit import GroupCommit

__all__ = ["Tracing", "TracingUnavailable"]

_METHODS: Final = frozenset(("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"))
_CHANGES: Final = frozenset(("append", "create", "delete"))
_CLOSE_S: Final = 2.0
"""A collector that does not respond must not delay the end of the server."""


class TracingUnavailable(SettingsError):
    """`--traces` is given, but OpenTelemetry is not installed."""

    message = (
        "--traces needs OpenTelemetry, which is not installed: "
        "pip install 'tailrace[otel]', or serve without --traces"
    )
    reason: str = ""


class Tracing:
    """Makes the spans of one server. Use it on the event loop."""

    def __init__(self, processor: "SpanProcessor | None" = None) -> None:
        """Send spans by OTLP over HTTP, or to another processor."""
        try:
            from opentelemetry import context, trace
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            processor = _exporting() if processor is None else processor
            self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        except ImportError:
            raise TracingUnavailable from None
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("tailrace", __version__)
        self._trace = trace
        self._root = context.Context()
        self._propagator = TraceContextTextMapPropagator()
        # The newest commit, and when it became durable.
        self._commit: SpanContext | None = None
        self._committed_at = 0.0

    def follow(self, commit: "GroupCommit") -> None:
        """Make a span for each group commit, too."""
        commit.on_sync = self._record_commit

    def record_response(self, request: Request, response: Response) -> None:
        """Make the span of a response, or of the head of a live one."""
        status = response.status
        attributes: dict[str, str | int] = {
            "http.request.method": request.method if request.method in _METHODS else "_OTHER",
            "http.response.status_code": status,
            "tailrace.operation": request.operation,
        }
        # The key of a bucket is its id; that of a stream starts with it.
        if bucket := request.target.key.partition(b"\0")[0].decode():
            attributes["tailrace.bucket"] = bucket
        if response.code is not None:
            attributes["error.type"] = response.code
        now = time.time_ns()
        taken_s = time.monotonic() - request.started
        span = self._tracer.start_span(
            request.operation,
            context=self._parent(request),
            kind=self._trace.SpanKind.SERVER,
            attributes=attributes,
            links=self._links(request, status),
            start_time=now - int(taken_s * 1e9),
        )
        if status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(now)

    def _record_commit(self, appends: int, started: float, ended: float) -> None:
        """A batch is durable, after an fsync; its responses are sent next."""
        # Spans need the wall clock; the measured times are monotonic.
        offset = time.time() - time.monotonic()
        span = self._tracer.start_span(
            "commit",
            context=self._root,
            attributes={"tailrace.commit.appends": appends},
            start_time=int((started + offset) * 1e9),
        )
        span.end(int((ended + offset) * 1e9))
        self._commit, self._committed_at = span.get_span_context(), ended

    def close(self) -> None:
        """Send the remaining spans, for at most `_CLOSE_S`. Blocks: call it in a thread."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def _parent(self, request: Request) -> "Context":
        """The span of the client's `traceparent`, or none."""
        carrier = {
            name.decode(): request.headers[name].decode("latin-1")
            for name in (b"traceparent", b"tracestate")
            if name in request.headers
        }
        return self._propagator.extract(carrier, self._root)

    def _links(self, request: Request, status: int) -> "list[Link] | None":
        """The commit that made a change durable; a retry that came after it has none."""
        if (
            self._commit is None
            or status >= 300
            or request.operation not in _CHANGES
            or request.started > self._committed_at
        ):
            return None
        return [self._trace.Link(self._commit)]


def _resource() -> "OtelResource":
    """The service of the spans: tailrace, unless the environment names another."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = Resource.create({"service.name": "tailrace", "service.version": __version__})
    return ours.merge(OTELResourceDetector().detect())


def _exporting() -> "SpanProcessor":
    """A bounded queue, a thread and OTLP over HTTP, configured by `OTEL_*` variables."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter())
