"""How many small appends per second are made durable, and how long does each wait?

256-byte appends from 64 and from 256 connections, spread over 64 streams. The
servers that store on disk respond only when the append is on the disk; the ones
in memory show the cost without the disk.

All runs use the same 64 streams: the file-backed reference server keeps 100
files open and rejects appends when more streams than that are in use.
"""

from __future__ import annotations

from benchmarks.load import append_load, check_load, create_streams, settled_bytes
from benchmarks.model import (
    REFERENCE_FILE,
    REFERENCE_MEMORY,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    TimesBetter,
    Workload,
)

PREFIX = "appends-"
STREAMS = 64
CONNECTIONS = (64, 256)


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Warm the server up, then load it with each number of connections."""
    outcome = Outcome()
    create_streams(server, PREFIX, range(STREAMS))
    if sizes.wrk_warm_up_seconds:
        append_load(server, PREFIX, STREAMS, CONNECTIONS[0], sizes.wrk_warm_up_seconds)
    before = settled_bytes(server, PREFIX, STREAMS)
    for connections in CONNECTIONS:
        load = append_load(server, PREFIX, STREAMS, connections, sizes.wrk_seconds)
        name = f"{connections} connections"
        progress(f"{name}: {load.per_second:,.0f} appends/s")
        outcome.metrics |= {
            f"c{connections}_per_second": load.per_second,
            f"c{connections}_p50_ms": load.p50_ms,
            f"c{connections}_p99_ms": load.p99_ms,
            f"c{connections}_p999_ms": load.p999_ms,
        }
        after = settled_bytes(server, PREFIX, STREAMS)
        outcome.checks += check_load(name, connections, load, before, after)
        before = after
    return outcome


RATE_GOALS = (TimesBetter(REFERENCE_FILE, 12), TimesBetter(REFERENCE_MEMORY, 1.8))

WORKLOAD = Workload(
    name="appends",
    question="How many 256-byte appends per second are made durable?",
    run=run,
    rows=(
        Row("c64_per_second", "appends, 64 connections", "/s", True, RATE_GOALS),
        Row("c64_p50_ms", "appends, 64 connections, p50", "ms", False),
        Row(
            "c64_p99_ms",
            "appends, 64 connections, p99",
            "ms",
            False,
            (TimesBetter(REFERENCE_FILE, 5),),
        ),
        Row("c256_per_second", "appends, 256 connections", "/s", True, RATE_GOALS),
        Row("c256_p50_ms", "appends, 256 connections, p50", "ms", False),
        Row("c256_p99_ms", "appends, 256 connections, p99", "ms", False),
    ),
)
