"""Can one server hold a million streams, and how fast does it start?

A million streams are created over HTTP. Then the server is stopped and started
on the same data directory, and the clock runs from the start of the process to
the first response about a stream. Resident memory is measured after the start, and
after HEAD requests and appends to random streams. Last, the server is ended by
SIGKILL and started again.

The files were just written, so they are in the cache of the operating system: a
start here does not wait for the disk.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator

from benchmarks.blocking import Connection, make_request
from benchmarks.client import Statuses, run_requests
from benchmarks.load import BODY_BYTES, CONTENT_TYPE
from benchmarks.machine import resident_megabytes
from benchmarks.model import (
    OURS,
    AtMost,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    Workload,
    exactly,
)

CREATE_CONNECTIONS = 256
TOUCH_CONNECTIONS = 64
REPORT_EVERY = 100_000
PREFIX = "many-"
SEED = 1


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Create, restart, touch, kill and restart."""
    outcome = Outcome()
    total = sizes.many_streams
    outcome.metrics["streams"] = total
    outcome.metrics["creates_per_second"] = _create(server, total, outcome, progress)

    starts = [_restart(server, total) for _ in range(sizes.many_restarts)]
    outcome.metrics["start_seconds"] = statistics.median(starts)
    outcome.metrics["start_megabytes"] = resident_megabytes(server.pid)
    progress(f"started in {statistics.median(starts):.2f} s")

    chosen = random.Random(SEED).choices(range(total), k=sizes.many_touches)
    _touch_all(server, chosen, outcome)
    outcome.metrics["touched_megabytes"] = resident_megabytes(server.pid)
    progress(f"{outcome.metrics['touched_megabytes']:.0f} MB resident after use")

    outcome.metrics["start_after_kill_seconds"] = _restart(server, total, kill=True)
    _read_back(server, chosen, outcome)
    return outcome


def _create(server: Server, total: int, outcome: Outcome, progress: Progress) -> float:
    """Create all streams; the creates per second."""
    made = Statuses()
    began = time.perf_counter()

    def requests() -> Iterator[bytes]:
        for number in range(total):
            if number and number % REPORT_EVERY == 0:
                rate = number / (time.perf_counter() - began)
                progress(f"created {number:,} of {total:,} streams, {rate:,.0f}/s")
            yield make_request("PUT", f"{PREFIX}{number}", content_type=CONTENT_TYPE)

    seconds = run_requests(server.host, server.port, CREATE_CONNECTIONS, requests(), made)
    outcome.checks.append(exactly("streams created", total, made.counts.get(201, 0)))
    return total / seconds


def _restart(server: Server, total: int, *, kill: bool = False) -> float:
    """Restart the server; returns the seconds to the first response about a stream."""
    server.restart(kill=kill)
    before = time.perf_counter()
    with Connection(server.host, server.port) as connection:
        connection.expect(200, make_request("HEAD", f"{PREFIX}{total - 1}"))
    return server.start_seconds + time.perf_counter() - before


def _touch_all(server: Server, chosen: list[int], outcome: Outcome) -> None:
    """Send HEAD for the chosen streams, then append to each of them."""
    asked, appended = Statuses(), Statuses()
    address = (server.host, server.port, TOUCH_CONNECTIONS)
    run_requests(*address, (make_request("HEAD", f"{PREFIX}{i}") for i in chosen), asked)
    outcome.checks.append(exactly("streams found", len(chosen), asked.counts.get(200, 0)))
    body = b"x" * BODY_BYTES
    seconds = run_requests(
        *address,
        (
            make_request("POST", f"{PREFIX}{i}", content_type=CONTENT_TYPE, body=body)
            for i in chosen
        ),
        appended,
    )
    outcome.metrics["random_appends_per_second"] = len(chosen) / seconds
    outcome.checks.append(exactly("random appends", len(chosen), appended.counts.get(204, 0)))


def _read_back(server: Server, chosen: list[int], outcome: Outcome) -> None:
    """Count the streams that hold exactly what was appended, after the kill."""
    times = Counter(chosen)
    right = 0

    def compare(request: bytes, status: int, head: bytes, body_bytes: int) -> None:
        nonlocal right
        number = int(request.split(b"?")[0].rsplit(b"-", 1)[1])
        right += status == 200 and body_bytes == times[number] * BODY_BYTES

    run_requests(
        server.host,
        server.port,
        TOUCH_CONNECTIONS,
        (make_request("GET", f"{PREFIX}{i}?offset=-1") for i in times),
        compare,
    )
    outcome.checks.append(exactly("streams right after the kill", len(times), right))


WORKLOAD = Workload(
    name="many_streams",
    question="Can one server hold a million streams, and how fast does it start?",
    run=run,
    rows=(
        Row("streams", "streams held", "", True),
        Row("creates_per_second", "creates, 256 connections", "/s", True),
        Row("start_seconds", "start with these streams", "s", False, (AtMost(3.0),)),
        Row("start_after_kill_seconds", "start after a kill", "s", False),
        Row("start_megabytes", "resident after the start", "MB", False, (AtMost(400.0),)),
        Row(
            "touched_megabytes",
            "resident after random use",
            "MB",
            False,
            (AtMost(400.0),),
        ),
    ),
    peers=(OURS,),
    one_round=True,
)
