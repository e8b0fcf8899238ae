"""How long does it take to create 300 streams at once?

64 connections send 300 creates; the time is from the first request to the last
response.
"""

from __future__ import annotations

import statistics

from benchmarks.blocking import make_request
from benchmarks.client import Statuses, run_requests
from benchmarks.load import create_streams
from benchmarks.model import (
    REFERENCE_FILE,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    TimesBetter,
    Workload,
    exactly,
)

CREATES = 300
CONNECTIONS = 64


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Create 300 new streams a few times; the median is the round's figure."""
    times: list[float] = []
    for repeat in range(sizes.create_repeats):
        numbers = range(repeat * CREATES, (repeat + 1) * CREATES)
        times.append(create_streams(server, "create-", numbers, CONNECTIONS))
    existing = Statuses()
    total = sizes.create_repeats * CREATES
    run_requests(
        server.host,
        server.port,
        CONNECTIONS,
        (make_request("HEAD", f"create-{i}") for i in range(total)),
        existing,
    )
    seconds = statistics.median(times)
    progress(f"{seconds * 1000:,.1f} ms")
    return Outcome(
        {"milliseconds": seconds * 1000},
        [exactly("streams that exist", total, existing.counts.get(200, 0))],
    )


WORKLOAD = Workload(
    name="creates",
    question="How long does it take to create 300 streams at once?",
    run=run,
    rows=(
        Row(
            "milliseconds",
            "300 creates from 64 connections",
            "ms",
            False,
            (TimesBetter(REFERENCE_FILE, 20),),
        ),
    ),
)
