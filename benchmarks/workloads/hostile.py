"""Do appends continue while 10,000 hostile clients are connected?

256-byte appends from 32 connections over 32 streams: first alone, then beside
10,000 idle connections, 500 that send one byte of a header per second, 100 SSE
readers that never read while their stream grows, and clients that send garbage,
all at once (see :mod:`benchmarks.hostile_clients`), then alone again. The figure
with a goal is the p99 beside them divided by the mean of the two p99s without.

The process of the hostile clients runs on the same two cores, and its load is part
of the figure. All connections come from one address, so the server gets a higher
--connections-max than the default.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.blocking import Connection, make_request
from benchmarks.load import Load, append_load, check_load, create_streams, settled_bytes
from benchmarks.machine import PeakMemory, allow_many_files, resident_megabytes
from benchmarks.model import (
    OURS,
    AtMost,
    BenchmarkError,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    Workload,
    exactly,
)

PREFIX = "hostile-"
GROWING = "growing"
STREAMS = CONNECTIONS = 32
# More than the system's buffers hold on loopback: later appends stay in the server.
GROWN_BYTES, GROWN_PIECES = 1 << 20, 8
GROWTH_BYTES = 32 << 10
GROWTH_SECONDS = 0.1
CONTENT_TYPE = "application/octet-stream"
OTHER_FILES = 400


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Load the server alone, beside hostile clients, and alone again."""
    needed = sizes.hostile_idle + sizes.hostile_slow + sizes.hostile_stalled + OTHER_FILES
    if allow_many_files() < needed:
        raise BenchmarkError(
            f"a process may open too few files: raise the limit with ulimit -Hn {needed}"
        )
    outcome = Outcome()
    create_streams(server, PREFIX, range(STREAMS))
    with Connection(server.host, server.port) as connection:
        connection.expect(201, make_request("PUT", GROWING, content_type=CONTENT_TYPE))
        for _ in range(GROWN_PIECES):
            connection.expect(204, _growth_of(GROWN_BYTES))
    if sizes.wrk_warm_up_seconds:
        append_load(server, PREFIX, STREAMS, CONNECTIONS, sizes.wrk_warm_up_seconds)
    before = _load(server, sizes, outcome, "alone")
    resident = resident_megabytes(server.pid)
    with (
        PeakMemory(server.pid) as peak,
        _growth(server),
        _hostile_clients(server, sizes) as clients,
    ):
        during = _load(server, sizes, outcome, "beside hostile clients")
        counts = _end(clients)
    after = _load(server, sizes, outcome, "alone again")
    alone = (before.p99_ms + after.p99_ms) / 2
    outcome.checks += [
        exactly("hostile clients that ended", 0, counts["ended"]),
        exactly(
            "pieces of garbage that were not rejected", 0, counts["garbage"] - counts["refused"]
        ),
    ]
    outcome.metrics |= {
        "alone_per_second": (before.per_second + after.per_second) / 2,
        "during_per_second": during.per_second,
        "alone_p50_ms": (before.p50_ms + after.p50_ms) / 2,
        "during_p50_ms": during.p50_ms,
        "alone_p99_ms": alone,
        "during_p99_ms": during.p99_ms,
        "during_max_ms": during.max_ms,
        "slower": during.p99_ms / alone,
        "before_megabytes": resident,
        "peak_megabytes": peak.megabytes,
        "after_megabytes": resident_megabytes(server.pid),
        **{f"hostile_{name}": float(count) for name, count in counts.items()},
    }
    progress(", ".join(f"{name} {value:,.1f}" for name, value in outcome.metrics.items()))
    return outcome


def _load(server: Server, sizes: Sizes, outcome: Outcome, name: str) -> Load:
    before = settled_bytes(server, PREFIX, STREAMS)
    load = append_load(server, PREFIX, STREAMS, CONNECTIONS, sizes.hostile_seconds)
    after = settled_bytes(server, PREFIX, STREAMS)
    outcome.checks += check_load(name, CONNECTIONS, load, before, after)
    return load


def _growth_of(size: int) -> bytes:
    return make_request("POST", GROWING, content_type=CONTENT_TYPE, body=b"x" * size)


@contextmanager
def _growth(server: Server) -> Iterator[None]:
    """Append to the stream whose readers do not read."""
    request = _growth_of(GROWTH_BYTES)
    stop = threading.Event()

    def grow() -> None:
        with Connection(server.host, server.port) as connection:
            while not stop.wait(GROWTH_SECONDS):
                connection.expect(204, request)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _hostile_clients(server: Server, sizes: Sizes) -> Iterator[subprocess.Popen[str]]:
    """The process of the hostile clients, once they are connected."""
    sizes_of = (sizes.hostile_idle, sizes.hostile_slow, sizes.hostile_stalled)
    arguments = [server.host, str(server.port), GROWING, *map(str, sizes_of)]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.hostile_clients", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise BenchmarkError("the hostile clients could not connect")
        yield process
    finally:
        process.kill()
        process.communicate()


def _end(process: subprocess.Popen[str]) -> dict[str, int]:
    """End the hostile clients; returns their counters."""
    out, _ = process.communicate(timeout=60)
    counts: dict[str, int] = json.loads(out)
    return counts


WORKLOAD = Workload(
    name="hostile",
    question="Do appends continue while 10,000 hostile clients are connected?",
    run=run,
    rows=(
        Row("alone_per_second", "appends, 32 connections, alone", "/s", True),
        Row("during_per_second", "appends, 32 connections, beside hostile clients", "/s", True),
        Row("alone_p99_ms", "appends, p99, alone", "ms", False),
        Row("during_p99_ms", "appends, p99, beside hostile clients", "ms", False),
        Row("slower", "p99 beside hostile clients / alone", "x", False, (AtMost(3.0),)),
        Row("before_megabytes", "resident before it", "MB", False),
        Row("peak_megabytes", "resident during it, at most", "MB", False, (AtMost(400.0),)),
    ),
    peers=(OURS,),
    options=("--connections-max", "20000"),
)
