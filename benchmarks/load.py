"""Appends as fast as the server accepts them, sent by ``wrk``.

``wrk`` is written in C, so that the load generator is not the bottleneck.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.blocking import Connection, make_request, parse_head
from benchmarks.client import Statuses, run_requests
from benchmarks.model import STREAMS_AT, BenchmarkError, Check, Server, between, exactly

SCRIPT = Path(__file__).parent / "append.lua"
BODY_BYTES = 256
CONTENT_TYPE = "application/octet-stream"
CREATE_CONNECTIONS = 64
READ_CONNECTIONS = 16
SETTLE_SECONDS = 0.2
THREADS = 1

HOW_TO_INSTALL = (
    "wrk is not installed; it generates the load. On Debian or Ubuntu: apt-get install wrk"
)


@dataclass(frozen=True)
class Load:
    """The result of wrk."""

    requests: int
    seconds: float
    refused: int
    socket_errors: int
    timeouts: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float

    @property
    def accepted(self) -> int:
        """Responses with a 2xx status."""
        return self.requests - self.refused

    @property
    def per_second(self) -> float:
        """Accepted appends per second."""
        return self.accepted / self.seconds


def require_wrk() -> str:
    """The path of wrk. The error says how to install it."""
    found = shutil.which("wrk")
    if found is None:
        raise BenchmarkError(HOW_TO_INSTALL)
    return found


def wrk_version() -> str:
    """The version of wrk, or "none"."""
    found = shutil.which("wrk")
    if found is None:
        return "none"
    shown = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    words = (shown.stdout + shown.stderr).split()
    return " ".join(words[1:2]) or "unknown"


def create_streams(
    server: Server, prefix: str, numbers: range, connections: int = CREATE_CONNECTIONS
) -> float:
    """Create ``prefix`` + number for each number; returns the seconds it took."""
    statuses = Statuses()
    requests = [make_request("PUT", f"{prefix}{i}", content_type=CONTENT_TYPE) for i in numbers]
    seconds = run_requests(
        server.host, server.port, min(connections, len(numbers)), requests, statuses
    )
    if statuses.counts != {201: len(numbers)}:
        raise BenchmarkError(f"creating {len(numbers)} streams gave statuses {statuses.counts}")
    return seconds


def append_load(server: Server, prefix: str, streams: int, connections: int, seconds: int) -> Load:
    """Append to existing streams from many connections for some seconds."""
    done = subprocess.run(
        [
            require_wrk(),
            f"--threads={THREADS}",
            f"--connections={connections}",
            f"--duration={seconds}s",
            "--timeout=10s",
            f"--script={SCRIPT}",
            f"http://{server.host}:{server.port}",
            "--",
            STREAMS_AT + prefix,
            str(streams),
            str(BODY_BYTES),
            CONTENT_TYPE,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 60,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return _parse(line.removeprefix("RESULT "))
    raise BenchmarkError(f"wrk gave no result:\n{done.stdout}{done.stderr}")


def check_load(name: str, connections: int, load: Load, before: int, after: int) -> list[Check]:
    """Compare the count of wrk with the bytes in the streams, read before and after.

    At the end wrk does not wait for the responses in flight, so the streams may
    hold up to one append more per connection than it counted.
    """
    return [
        exactly(f"{name}: rejected appends", 0, load.refused),
        exactly(f"{name}: socket errors and time-outs", 0, load.socket_errors + load.timeouts),
        between(
            f"{name}: bytes read back",
            load.accepted * BODY_BYTES,
            (load.accepted + connections) * BODY_BYTES,
            after - before,
        ),
        exactly(f"{name}: bytes of truncated appends", 0, after % BODY_BYTES),
    ]


def settled_bytes(server: Server, prefix: str, streams: int) -> int:
    """:func:`stored_bytes`, after the appends that wrk left in flight have ended."""
    found = stored_bytes(server, prefix, streams)
    while True:
        time.sleep(SETTLE_SECONDS)
        again = stored_bytes(server, prefix, streams)
        if again == found:
            return found
        found = again


def stored_bytes(server: Server, prefix: str, streams: int) -> int:
    """The total bytes in all streams, found by reading them.

    First one page of each over many connections, then the streams that are longer
    than a page, one after the other.
    """
    total = 0
    longer: list[str] = []

    def count(request: bytes, status: int, head: bytes, body_bytes: int) -> None:
        nonlocal total
        code, headers = parse_head(head)
        path = request.decode("ascii").split(" ")[1].removeprefix(STREAMS_AT).split("?")[0]
        if code != 200:
            raise BenchmarkError(f"reading {path} back gave status {code}")
        if headers.get("stream-up-to-date") == "true":
            total += body_bytes
        else:
            longer.append(path)

    run_requests(
        server.host,
        server.port,
        READ_CONNECTIONS,
        (make_request("GET", f"{prefix}{i}?offset=-1") for i in range(streams)),
        count,
    )
    with Connection(server.host, server.port) as connection:
        for path in longer:
            total += connection.read_stream(path)
    return total


def _parse(text: str) -> Load:
    found: dict[str, int] = json.loads(text)
    return Load(
        requests=found["requests"],
        seconds=found["duration_us"] / 1e6,
        refused=found["refused"],
        socket_errors=found["socket_errors"],
        timeouts=found["timeouts"],
        p50_ms=found["p50_us"] / 1000,
        p99_ms=found["p99_us"] / 1000,
        p999_ms=found["p999_us"] / 1000,
        max_ms=found["max_us"] / 1000,
    )
