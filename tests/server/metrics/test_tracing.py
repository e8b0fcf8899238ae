"""Spans of requests: their content, and what they must not contain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tailrace.protocol.errors import Refusal
from tailrace.server.message import Request, Response
from tailrace.server.observability.tracing import Tracing
from tailrace.server.routing.target import resolve
from tests.server.metrics.engines import opened

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
PARENT = 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE:032x}-{PARENT:016x}-01"
SECRET = "c0ffee-secret"


class Recorded:
    """Tracing that keeps its spans in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracing = Tracing(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def span_of(
        self,
        method: str,
        path: bytes,
        operation: str,
        status: int,
        *,
        code: str | None = None,
        started: float | None = None,
        **headers: str,
    ) -> ReadableSpan:
        """The span of one response."""
        sent = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
        sent[b"authorization"] = f"Bearer {SECRET}".encode()
        request = Request(method, path, f"token={SECRET}".encode(), sent, SECRET.encode())
        with suppress(Refusal):
            request.target = resolve(path)
        request.operation = operation
        request.started = time.monotonic() if started is None else started
        response = Response(status, [], SECRET.encode())
        response.code = code
        self.tracing.record_response(request, response)
        return self.spans[-1]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recorded = Recorded()
    yield recorded
    recorded.tracing.close()


def test_a_span_has_the_operation_and_the_status(recorded: Recorded) -> None:
    span = recorded.span_of("POST", b"/bucket/stream", "append", 204)
    assert (span.name, span.kind, span.parent) == ("append", SpanKind.SERVER, None)
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.response.status_code": 204,
        "tailrace.operation": "append",
        "tailrace.bucket": "bucket",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert span.resource.attributes["service.name"] == "tailrace"


@pytest.mark.parametrize(
    ("path", "bucket"),
    [
        (b"/bucket", "bucket"),
        (b"/bucket/streams", "bucket"),
        (b"/bucket/a%2Db/snapshot/x", "bucket"),
        (b"/v1/stream/some/where", None),
        (b"/-/metrics", None),
        (b"/no", None),
        (b"/%zz", None),
        (b"/" + b"x" * 2000, None),
    ],
)
def test_a_span_has_the_bucket_and_no_other_part_of_the_path(
    recorded: Recorded, path: bytes, bucket: str | None
) -> None:
    span = recorded.span_of("GET", path, "read", 200)
    assert (span.attributes or {}).get("tailrace.bucket") == bucket
    assert "where" not in span.to_json()


def test_a_span_has_no_credentials_query_or_content(recorded: Recorded) -> None:
    recorded.span_of("POST", b"/bucket/stream", "append", 204, traceparent=TRACEPARENT)
    recorded.span_of("BREW" + SECRET, b"/bucket/stream", "unknown", 405, code="method-not-allowed")
    for span in recorded.spans:
        assert SECRET not in span.to_json()
    assert (recorded.spans[-1].attributes or {})["http.request.method"] == "_OTHER"


def test_the_trace_of_the_client_is_continued(recorded: Recorded) -> None:
    span = recorded.span_of(
        "GET", b"/bucket/s", "read", 200, traceparent=TRACEPARENT, tracestate="vendor=1"
    )
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (TRACE, PARENT)
    assert span.parent.is_remote
    context = span.context
    assert context is not None
    assert context.trace_id == TRACE
    assert context.trace_state.get("vendor") == "1"


@pytest.mark.parametrize("header", ["", "00-0-0-01", "nonsense", "\xff" * 55, "0" * 5000])
def test_an_invalid_traceparent_starts_a_new_trace(recorded: Recorded, header: str) -> None:
    span = recorded.span_of("GET", b"/bucket/s", "read", 200, traceparent=header, tracestate="=,=")
    assert span.parent is None


def test_a_request_that_the_client_does_not_sample_is_not_traced(recorded: Recorded) -> None:
    unsampled = TRACEPARENT[:-2] + "00"
    with pytest.raises(IndexError):
        recorded.span_of("GET", b"/bucket/s", "read", 200, traceparent=unsampled)


def test_a_4xx_has_its_code_and_a_5xx_is_an_error(recorded: Recorded) -> None:
    refused = recorded.span_of("GET", b"/bucket/s", "read", 404, code="stream-not-found")
    assert (refused.attributes or {})["error.type"] == "stream-not-found"
    # OpenTelemetry's conventions: a 4xx is not an error of the server.
    assert refused.status.status_code is StatusCode.UNSET
    failed = recorded.span_of("GET", b"/bucket/s", "read", 500, code="internal")
    assert failed.status.status_code is StatusCode.ERROR


def test_a_span_starts_when_the_request_arrived(recorded: Recorded) -> None:
    span = recorded.span_of("GET", b"/bucket/s", "read", 200, started=time.monotonic() - 60)
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time >= 60e9


def test_the_span_of_a_write_links_to_its_commit(recorded: Recorded, tmp_path: Path) -> None:
    """A retry has no commit and no link."""

    async def commit() -> None:
        async with opened(tmp_path) as server:
            recorded.tracing.follow(server.engine.commit)
            await server.create_bucket("bucket")
            await asyncio.gather(*(server.append("bucket", f"s{n}", b"x") for n in range(5)))

    before = time.monotonic()
    asyncio.run(commit())
    commits = [span for span in recorded.spans if span.name == "commit"]
    appends = [(span.attributes or {})["tailrace.commit.appends"] for span in commits]
    assert sum(map(int, map(str, appends))) == 5
    for span in commits:
        assert (span.start_time or 0) <= (span.end_time or 0)
    waited = recorded.span_of("POST", b"/bucket/s", "append", 204, started=before)
    assert [link.context for link in waited.links] == [commits[-1].context]
    for operation, status, started in (
        ("append", 204, time.monotonic()),
        ("append", 409, before),
        ("read", 200, before),
    ):
        span = recorded.span_of("POST", b"/bucket/s", operation, status, started=started)
        assert not span.links, (operation, status)
