"""Does a later page of a bucket's listing cost more than the first?

A bucket of a million streams is listed from its beginning to its end, 100
streams a page. The figure with a goal is the median time of the last 100 pages
divided by that of the first 100. Each stream must be listed once.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator

from benchmarks.blocking import Connection, make_request
from benchmarks.client import Statuses, run_requests
from benchmarks.load import CONTENT_TYPE
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

BUCKET = "bench"
CONNECTIONS = 256
LIMIT = 100


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Create the streams, restart the server, list them all."""
    outcome = Outcome()
    total = sizes.listed_streams
    made = Statuses()

    def requests() -> Iterator[bytes]:
        for number in range(total):
            yield make_request("PUT", f"{BUCKET}/{number:07d}", content_type=CONTENT_TYPE, root="/")

    with Connection(server.host, server.port) as connection:
        connection.expect(201, make_request("PUT", BUCKET, root="/"))
    run_requests(server.host, server.port, CONNECTIONS, requests(), made)
    if made.counts != {201: total}:
        raise BenchmarkError(f"creating {total} streams gave statuses {made.counts}")
    # Streams just created are cached; a listing must not depend on that.
    server.restart()
    times, listed = _list_all(server)
    outcome.checks.append(exactly("streams listed", total, listed))
    few = min(100, max(1, len(times) // 4))
    first, last = statistics.median(times[:few]), statistics.median(times[-few:])
    outcome.metrics |= {
        "streams": total,
        "first_ms": first * 1000,
        "last_ms": last * 1000,
        "ratio": last / first,
    }
    progress(f"first pages {first * 1000:.2f} ms, last pages {last * 1000:.2f} ms")
    return outcome


def _list_all(server: Server) -> tuple[list[float], int]:
    """The seconds for each page, and the number of different streams."""
    times: list[float] = []
    seen = 0
    after = ""
    with Connection(server.host, server.port) as connection:
        while True:
            body = bytearray()
            target = f"{BUCKET}/streams?limit={LIMIT}&after={after}"
            began = time.perf_counter()
            connection.expect(200, make_request("GET", target, root="/"), body.extend)
            times.append(time.perf_counter() - began)
            page = json.loads(body)
            names = [item["stream_id"] for item in page["streams"]]
            if names != sorted(names) or (names and names[0] <= after):
                raise BenchmarkError("the listing is out of order")
            seen += len(names)
            if not page["has_more"]:
                return times, seen
            after = page["next_cursor"]


WORKLOAD = Workload(
    name="listing",
    question="Does a later page of a bucket's listing cost more than the first?",
    run=run,
    rows=(
        Row("streams", "streams in the bucket", "", True),
        Row("first_ms", "a page of 100, the first ones", "ms", False),
        Row("last_ms", "a page of 100, the last ones", "ms", False),
        Row("ratio", "last pages / first pages", "x", False, (AtMost(1.5),)),
    ),
    peers=(OURS,),
    one_round=True,
)
