"""Do appends wait while a snapshot of 1 GiB is uploaded?

256-byte appends from 64 connections over 64 streams: first alone, then while
another process uploads snapshots of 1 GiB, one after the other while the
appends run, then alone again. The figure with a goal is the p99 during the
uploads divided by the mean of the two p99s without. The last snapshot is read
back and compared.

The process that uploads runs on the same two cores, and its load is part of the
figure.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import Any

from benchmarks.blocking import Connection, make_request
from benchmarks.load import Load, append_load, check_load, create_streams, settled_bytes
from benchmarks.machine import PeakMemory
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
from benchmarks.uploader import STREAM

PREFIX = "beside-"
STREAMS = CONNECTIONS = 64


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Load the server alone, beside uploads, and alone again."""
    outcome = Outcome()
    create_streams(server, PREFIX, range(STREAMS))
    if sizes.wrk_warm_up_seconds:
        append_load(server, PREFIX, STREAMS, CONNECTIONS, sizes.wrk_warm_up_seconds)
    before = _load(server, sizes, outcome, "alone")
    with PeakMemory(server.pid) as peak, _uploader(server, sizes) as uploader:
        during = _load(server, sizes, outcome, "beside uploads")
        found = _finish(uploader)
    after = _load(server, sizes, outcome, "alone again")
    with Connection(server.host, server.port) as connection:
        digest = hashlib.sha256()
        path = f"{STREAM}/snapshot/{found['offset']}"
        connection.expect(200, make_request("GET", path, root="/"), digest.update)
    same = digest.hexdigest() == found["sha256"]
    outcome.checks.append(exactly("snapshots read back unchanged", 1, int(same)))
    alone = (before.p99_ms + after.p99_ms) / 2
    outcome.metrics |= {
        "alone_per_second": (before.per_second + after.per_second) / 2,
        "during_per_second": during.per_second,
        "alone_p99_ms": alone,
        "during_p99_ms": during.p99_ms,
        "during_max_ms": during.max_ms,
        "slower": during.p99_ms / alone,
        "upload_megabytes_per_second": found["bytes"] / found["seconds"] / 1e6,
        "peak_megabytes": peak.megabytes,
    }
    progress(", ".join(f"{name} {value:,.1f}" for name, value in outcome.metrics.items()))
    return outcome


def _load(server: Server, sizes: Sizes, outcome: Outcome, name: str) -> Load:
    before = settled_bytes(server, PREFIX, STREAMS)
    load = append_load(server, PREFIX, STREAMS, CONNECTIONS, sizes.snapshot_seconds)
    after = settled_bytes(server, PREFIX, STREAMS)
    outcome.checks += check_load(name, CONNECTIONS, load, before, after)
    return load


def _uploader(server: Server, sizes: Sizes) -> subprocess.Popen[str]:
    """Start a process that uploads until its standard input ends; returns when it has begun."""
    arguments = [server.host, str(server.port), str(sizes.snapshot_bytes)]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.uploader", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "uploading\n":
        process.kill()
        raise BenchmarkError("the upload could not begin")
    return process


def _finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """End after the current upload; returns the totals."""
    out, _ = process.communicate(timeout=300)
    found: dict[str, Any] = json.loads(out)
    return found


WORKLOAD = Workload(
    name="large_snapshot",
    question="Do appends wait while a snapshot of 1 GiB is uploaded?",
    run=run,
    rows=(
        Row("alone_per_second", "appends, 64 connections, alone", "/s", True),
        Row("during_per_second", "appends, 64 connections, beside uploads", "/s", True),
        Row("alone_p99_ms", "appends, p99, alone", "ms", False),
        Row("during_p99_ms", "appends, p99, beside uploads", "ms", False),
        Row("slower", "p99 beside uploads / alone", "x", False, (AtMost(2.0),)),
        Row("upload_megabytes_per_second", "upload of 1 GiB beside appends", "MB/s", True),
        Row("peak_megabytes", "resident during it, at most", "MB", False, (AtMost(400.0),)),
    ),
    peers=(OURS,),
)
