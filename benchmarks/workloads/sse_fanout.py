"""How long does an append take to reach 1,000 live subscribers?

1,000 subscribers follow one text stream over server-sent events. One writer
appends 256 bytes ten times a second, each with the time at which it was sent.
Another process receives: see :mod:`benchmarks.subscribers`. Every subscriber
must receive every append exactly once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.blocking import Connection, make_request
from benchmarks.model import (
    REFERENCE_FILE,
    AtMost,
    BenchmarkError,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    TimesBetter,
    Workload,
    exactly,
)
from benchmarks.subscribers import make_message

PATH = "fanout"
PER_SECOND = 10


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Connect the subscribers, append at a fixed rate, collect the results."""
    with Connection(server.host, server.port) as connection:
        connection.expect(201, make_request("PUT", PATH, content_type="text/plain"))
        receiver = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.subscribers",
                server.host,
                str(server.port),
                PATH,
                str(sizes.sse_subscribers),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert receiver.stdout is not None
            if receiver.stdout.readline() != "ready\n":
                raise BenchmarkError("the subscribers could not connect")
            appends = PER_SECOND * sizes.sse_seconds
            late = _append_steadily(connection, appends)
            found = json.loads(receiver.communicate("stop\n", timeout=120)[0])
        finally:
            receiver.kill()
            receiver.wait()
    progress(f"p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms")
    expected = appends * sizes.sse_subscribers
    return Outcome(
        {
            "p50_ms": found["p50_ms"],
            "p99_ms": found["p99_ms"],
            "max_ms": found["max_ms"],
            "late_sends": late,
            "lost": expected - found["distinct"],
        },
        [
            exactly("different messages received", expected, found["distinct"]),
            exactly("duplicate messages received", 0, found["received"] - found["distinct"]),
            exactly("subscribers disconnected", 0, found["cut_off"]),
        ],
    )


def _append_steadily(connection: Connection, appends: int) -> int:
    """Append at a fixed rate; returns how many were sent late."""
    late = 0
    start = time.monotonic()
    for number in range(appends):
        wait = start + number / PER_SECOND - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        elif wait < -0.5 / PER_SECOND:
            late += 1
        body = make_message(number, time.monotonic_ns())
        connection.expect(204, make_request("POST", PATH, content_type="text/plain", body=body))
    return late


WORKLOAD = Workload(
    name="sse_fanout",
    question="How long does an append take to reach 1,000 live subscribers?",
    run=run,
    rows=(
        Row("p50_ms", "append to subscriber, p50", "ms", False),
        Row(
            "p99_ms",
            "append to subscriber, p99",
            "ms",
            False,
            (TimesBetter(REFERENCE_FILE, 5),),
        ),
        Row("lost", "messages lost", "", False, (AtMost(0.0),)),
    ),
)
