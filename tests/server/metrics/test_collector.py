"""Export of spans: to a collector, to one that is unreachable, and without the library."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.server import REPO_ROOT, AsgiServerProcess, ServerProcess
from tests.support.streams import Api

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "c0ffee-secret"
# Not an assertion about speed: the machine may be busy.
WAIT_S = 60.0


class Collector:
    """An OTLP receiver on loopback."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in list(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def until(self, is_so: Callable[[list[Any]], bool]) -> list[Any]:
        deadline = time.monotonic() + WAIT_S
        while not is_so(spans := self.spans):
            assert time.monotonic() < deadline, [span.name for span in spans]
            time.sleep(0.01)
        return spans


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


@pytest.mark.parametrize(
    "kind", [ServerProcess, pytest.param(AsgiServerProcess, marks=pytest.mark.slow)]
)
def test_a_server_sends_its_spans_to_a_collector(
    kind: type[ServerProcess] | type[AsgiServerProcess], collector: Collector, tmp_path: Path
) -> None:
    env = {
        "TAILRACE_TRACES": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": "streams",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    with kind(tmp_path, env=env) as server:
        api = Api(server)
        bucket = api.new_bucket()
        path = api.in_bucket(bucket, "traced")
        text = {"Content-Type": "text/plain", "traceparent": TRACEPARENT}
        assert api.request("PUT", path, text).status == 201
        assert api.request("POST", path, text, SECRET.encode()).status == 204
        assert api.request("GET", f"{path}?offset=-1&{SECRET}={SECRET}").status == 200
        spans = collector.until(lambda spans: {"read", "commit"} <= {span.name for span in spans})
        api.close()
        # Spans that are still queued are sent at shutdown.
        with api.connect() as connection:
            assert connection.request("HEAD", path, {}).status == 200
        # uvicorn exits with the signal that stopped it.
        assert server.terminate() in (0, -signal.SIGTERM)
    assert "head" in {span.name for span in collector.spans}
    by_name = {span.name: span for span in spans}
    append = by_name["append"]
    assert (append.trace_id.hex(), append.parent_span_id.hex()) == (
        TRACE, PARENT,
    )  # fmt: skip
    attributes = {item.key: item.value for item in append.attributes}
    assert attributes["tailrace.bucket"].string_value == bucket
    assert attributes["http.response.status_code"].int_value == 204
    assert len(append.links) == 1
    commits = {span.span_id for span in collector.spans if span.name == "commit"}
    assert append.links[0].span_id in commits
    assert not by_name["read"].parent_span_id
    sent = b"".join(request.SerializeToString() for request in collector.requests)
    assert SECRET.encode() not in sent
    assert b"traced" not in sent
    names = {
        item.value.string_value
        for item in collector.requests[0].resource_spans[0].resource.attributes
        if item.key == "service.name"
    }
    assert names == {"streams"}


def test_an_unreachable_collector_does_not_delay_requests_or_shutdown(tmp_path: Path) -> None:
    # A port that is bound, and on which no process listens.
    unused = socket.socket()
    unused.bind(("127.0.0.1", 0))
    endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    env = {"TAILRACE_TRACES": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    with unused, ServerProcess(tmp_path, "--engine", "memory", env=env) as server:
        api = Api(server)
        for _ in range(20):
            assert api.request("GET", api.path()).status == 404
        api.close()
        assert server.terminate() == 0


def test_without_the_library_the_error_names_the_package_to_install(tmp_path: Path) -> None:
    missing = tmp_path / "opentelemetry"
    missing.mkdir()
    (missing / "__init__.py").write_text("raise ImportError('not installed')\n")
    command = [
        *(sys.executable, "-m", "tailrace", "serve", "--traces"),
        *("--port", "0", "--data-dir", str(tmp_path / "data")),
    ]
    ended = subprocess.run(
        command, cwd=REPO_ROOT, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, timeout=120
    )
    assert ended.returncode == 2
    assert b"pip install 'tailrace[otel]'" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_without_tracing_its_modules_are_not_imported() -> None:
    code = (
        "import sys, tailrace.server.lifecycle; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert ended.stdout.strip() == b"[]", ended.stderr
