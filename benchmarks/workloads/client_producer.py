"""How many messages per second can a program append with a client?

The client encodes messages of 190 bytes one by one and sends them to one stream
of a Tailrace server with default settings, on the same machine. The clock runs
from the first message to the response for the last. Compared are our producers
and the producer of npm's client. PyPI's client has none: 64 threads or 1,000
tasks append at the same time, and it batches them. The last rows are appends in a
loop, each awaited. Everything is read back and counted.

Each client runs in its own process: see :mod:`benchmarks.clients`.
"""

from __future__ import annotations

from benchmarks.batches import CONTENT_TYPE, count_messages
from benchmarks.blocking import Connection, make_request
from benchmarks.clients import running
from benchmarks.model import OURS, Outcome, Progress, Row, Server, Sizes, Workload, exactly

MESSAGES = {"full": 500_000, "quick": 200_000, "smoke": 2_000}
SHARES = {
    ("tailrace", "sync"): 1,
    ("tailrace", "async"): 1,
    ("npm", "sync"): 1,
    ("pypi", "sync"): 10,
    ("pypi", "async"): 5,
    ("tailrace", "append"): 100,
    ("npm", "append"): 100,
    ("pypi", "append"): 100,
}
"""The clients and modes, and the divisor of the number of messages for each."""


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """One client after another, each with its own stream."""
    outcome = Outcome()
    clients = running.usable(sizes, progress)
    with Connection(server.host, server.port) as connection:
        for (client, mode), share in SHARES.items():
            if client not in clients:
                continue
            path = f"producer-{client}-{mode}"
            connection.expect(201, make_request("PUT", path, content_type=CONTENT_TYPE))
            messages = MESSAGES[sizes.name] // share
            url = running.url_of(server, path)
            found = running.finish(running.start(client, mode, "produce", url, messages))
            title = f"{running.CLIENTS[client].title}, {mode}"
            progress(
                f"{title}: {found.per_second:,.0f} messages/s, "
                f"{found.processor_us:.2f} µs of processor each {found.note}".rstrip()
            )
            outcome.metrics[f"{client}_{mode}_per_second"] = found.per_second
            outcome.metrics[f"{client}_{mode}_processor_us"] = found.processor_us
            stored, _ = count_messages(connection, path)
            outcome.checks.append(exactly(f"messages stored by {title}", messages, stored))
    return outcome


WORKLOAD = Workload(
    name="client_producer",
    question="How many messages per second can a program append with a client?",
    run=run,
    rows=(
        Row("tailrace_sync_per_second", "Producer", "/s", True),
        Row("tailrace_sync_processor_us", "  its processor time, each", "µs", False),
        Row("tailrace_async_per_second", "AsyncProducer", "/s", True),
        Row("tailrace_async_processor_us", "  its processor time, each", "µs", False),
        Row("npm_sync_per_second", "npm client, producer", "/s", True),
        Row("npm_sync_processor_us", "  its processor time, each", "µs", False),
        Row("pypi_sync_per_second", "PyPI client, 64 threads", "/s", True),
        Row("pypi_sync_processor_us", "  its processor time, each", "µs", False),
        Row("pypi_async_per_second", "PyPI client, 1,000 tasks", "/s", True),
        Row("pypi_async_processor_us", "  its processor time, each", "µs", False),
        Row("tailrace_append_per_second", "Stream.append_json in a loop", "/s", True),
        Row("tailrace_append_processor_us", "  its processor time, each", "µs", False),
        Row("npm_append_per_second", "npm client, append in a loop", "/s", True),
        Row("npm_append_processor_us", "  its processor time, each", "µs", False),
        Row("pypi_append_per_second", "PyPI client, append in a loop", "/s", True),
        Row("pypi_append_processor_us", "  its processor time, each", "µs", False),
    ),
    peers=(OURS,),
)
