"""How fast can one reader catch up with a long JSON stream?

A 60 MB stream is read from its start until the server reports that the reader
is up to date. The stream was just written, so it comes from the cache of the
operating system; the disk is not measured. The reader does not look at the
bodies while the clock runs.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.batches import (
    CONTENT_TYPE,
    MESSAGE_BYTES,
    MESSAGES,
    batch_request,
    count_messages,
)
from benchmarks.blocking import Connection, make_request
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

PATH = "catchup"


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Create the stream, read and count it once, then measure reads of it."""
    batches = -(-sizes.catchup_bytes // (MESSAGES * MESSAGE_BYTES))
    outcome = Outcome()
    with Connection(server.host, server.port) as connection:
        connection.expect(201, make_request("PUT", PATH, content_type=CONTENT_TYPE))
        request = batch_request(PATH)
        for _ in range(batches):
            connection.expect(204, request)
        messages, length = count_messages(connection, PATH)
        outcome.checks.append(exactly("messages read back", batches * MESSAGES, messages))
        rates: list[float] = []
        for _ in range(sizes.catchup_passes):
            before = time.perf_counter()
            found = connection.read_stream(PATH)
            rates.append(found / (time.perf_counter() - before) / 1e6)
            outcome.checks.append(exactly("bytes of a timed read", length, found))
    outcome.metrics["megabytes_per_second"] = statistics.median(rates)
    progress(f"{length / 1e6:,.1f} MB at {statistics.median(rates):,.0f} MB/s")
    return outcome


WORKLOAD = Workload(
    name="catchup",
    question="How fast can one reader catch up with a long JSON stream?",
    run=run,
    rows=(
        Row(
            "megabytes_per_second",
            "catch-up of a JSON stream",
            "MB/s",
            True,
            (TimesBetter(REFERENCE_FILE, 10),),
        ),
    ),
)
