"""
Traces of requests, by OpenTelemetry; an extra, and off unless `--traces` is given.

Rule 1: a span says what was done and how it ended, never with what: no query, no header, no stream
and no content. A bucket is named, since buckets are few and an operator's own.

Rule 2: nothing waits for a collector. Spans go into a queue of bounded length, and a thread sends
them; what does not fit is dropped.

A span is made when its answer is, with the moment at which the request came as its start: a request
whose client goes away first leaves nothing behind that would have to be remembered or ended.

    append, read, …   one of each request, a child of what the client's `traceparent` names
    commit            one of each group commit; the spans of what it made durable link to it

Where they go is said by the variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT` and others).
"""

import threading
import time
from typing import TYPE_CHECKING, Final

from tailrace import __version__
from tailrace.protocol.errors import Refusal
from tailrace.protocol.names import bucket_of
from tailrace.server.message import Request, Response
from tailrace.server.routing.target import SHORT_BYTES_MAX, Resource, resolve, resolve_short
from tailrace.server.settings import SettingsError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource as OtelResource
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Link, SpanContext

    from tailrace.engine.commit import GroupCommit

__all__ = ["Traces", "TracesUnavailable"]

_METHODS: Final = frozenset(("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"))
_CHANGES: Final = frozenset(("append", "create", "delete"))
_CLOSE_S: Final = 2.0
"""A collector that does not answer must not keep the server from ending."""


class TracesUnavailable(SettingsError):
    """Traces are asked for, and what makes them is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "--traces needs OpenTelemetry, which is not installed: "
            "pip install 'tailrace[otel]', or serve without --traces"
        )


class Traces:
    """Makes the spans of one server. Use it on the event loop."""

    def __init__(self, processor: "SpanProcessor | None" = None) -> None:
        """
        Begin, with spans sent by OTLP over HTTP unless another processor takes them.

        Raises:
            TracesUnavailable: The libraries are not installed.
        """
        try:
            from opentelemetry import context, trace
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            processor = _exporting() if processor is None else processor
            self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        except ImportError:
            raise TracesUnavailable from None
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("tailrace", __version__)
        self._trace = trace
        self._root = context.Context()
        self._propagator = TraceContextTextMapPropagator()
        # The newest commit, and when it was durable.
        self._commit: SpanContext | None = None
        self._committed_at = 0.0

    def follow(self, commit: "GroupCommit") -> None:
        """Make a span of each group commit, too."""
        commit.traced = self.committed

    def answered(self, request: Request, response: Response) -> None:
        """An answer, or the head of a live one, is handed to the transport."""
        status = response.status
        attributes: dict[str, str | int] = {
            "http.request.method": request.method if request.method in _METHODS else "_OTHER",
            "http.response.status_code": status,
            "tailrace.operation": request.operation,
        }
        if bucket := _bucket(request.path):
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

    def committed(self, appends: int, started: float, ended: float) -> None:
        """A batch is durable, after an fsync; whoever is answered for it comes next."""
        # The span tells the time of day, and what was measured is another clock's.
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
        """Send what is left, if that can be done within a moment. Blocks: call it in a thread."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def _parent(self, request: Request) -> "Context":
        """The span that the client says it is in, or none."""
        headers = request.headers
        if b"traceparent" not in headers:
            return self._root
        names = (b"traceparent", b"tracestate")
        carrier = {
            name.decode(): headers[name].decode("latin-1") for name in names if name in headers
        }
        return self._propagator.extract(carrier, self._root)

    def _links(self, request: Request, status: int) -> "list[Link] | None":
        """The commit that made a change durable; a retry needs none, and came after the last."""
        if (
            self._commit is None
            or status >= 300
            or request.operation not in _CHANGES
            or request.started > self._committed_at
        ):
            return None
        return [self._trace.Link(self._commit)]


def _bucket(path: bytes) -> str:
    """The bucket that a path names, or lies in; empty if it does not."""
    try:
        target = resolve_short(path) if len(path) <= SHORT_BYTES_MAX else resolve(path)
    except Refusal:
        return ""
    if target.resource in (Resource.BUCKET, Resource.LISTING):
        return target.key.decode()
    return bucket_of(target.key).decode()


def _resource() -> "OtelResource":
    """Who sends the spans: tailrace, unless the environment calls it something else."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = Resource.create({"service.name": "tailrace", "service.version": __version__})
    return ours.merge(OTELResourceDetector().detect())


def _exporting() -> "SpanProcessor":
    """Bounded queue, thread and OTLP over HTTP, all set by `OTEL_*` variables."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter())
