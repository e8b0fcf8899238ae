"""How many messages per second can a program read with a client?

A JSON stream of a million messages of 190 bytes, closed at its end, is read
from its beginning: by `tail_json` a message at a time, by `tail` as bytes, and
by the clients of npm and PyPI a message at a time. Then each follows an open
stream over server-sent events while one writer appends batches of 1,000 as fast
as the server accepts them; the clock runs from the first message to the last, so
this is the pace of writer, server and reader together. The messages that
arrive are counted.

Each client runs in its own process: see :mod:`benchmarks.clients`.
Not measured: the latency to a reader, see sse_fanout.
"""

from __future__ import annotations

from benchmarks.batches import CONTENT_TYPE, MESSAGES, batch_request, count_messages
from benchmarks.blocking import Connection, make_request
from benchmarks.clients import running
from benchmarks.model import (
    OURS,
    STREAMS_AT,
    BenchmarkError,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    Workload,
    exactly,
)

BATCHES = {"full": 1_000, "quick": 300, "smoke": 5}
READERS = (
    ("tailrace", "sync"),
    ("tailrace", "async"),
    ("tailrace", "chunks"),
    ("npm", "sync"),
    ("pypi", "sync"),
    ("pypi", "async"),
)
PATH = "tail"


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Write one long stream for all clients to read, and one for each to follow."""
    outcome = Outcome()
    clients = running.usable(sizes, progress)
    readers = [reader for reader in READERS if reader[0] in clients]
    batches = BATCHES[sizes.name]
    with Connection(server.host, server.port) as connection:
        _create(connection, PATH)
        _write(connection, PATH, batches)
        stored, _ = count_messages(connection, PATH)
        outcome.checks.append(exactly("messages stored", batches * MESSAGES, stored))
        for work in ("read", "follow"):
            for client, mode in readers:
                if (work, mode) == ("follow", "chunks"):
                    continue
                found = (
                    _read(server, client, mode, batches)
                    if work == "read"
                    else _follow(server, connection, client, mode, batches)
                )
                title = f"{work} by {running.CLIENTS[client].title}, {mode}"
                progress(
                    f"{title}: {found.per_second:,.0f} messages/s, "
                    f"{found.processor_us:.2f} µs of processor each {found.note}".rstrip()
                )
                outcome.metrics[f"{work}_{client}_{mode}_per_second"] = found.per_second
                outcome.metrics[f"{work}_{client}_{mode}_processor_us"] = found.processor_us
                outcome.checks.append(exactly(f"messages {title}", stored, found.messages))
    return outcome


def _read(server: Server, client: str, mode: str, batches: int) -> running.Found:
    url = running.url_of(server, PATH)
    return running.finish(running.start(client, mode, "read", url, batches * MESSAGES))


def _follow(
    server: Server, connection: Connection, client: str, mode: str, batches: int
) -> running.Found:
    path = f"follow-{client}-{mode}"
    _create(connection, path)
    url = running.url_of(server, path)
    process = running.start(client, mode, "follow", url, batches * MESSAGES)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise BenchmarkError(f"{client} could not follow")
        _write(connection, path, batches)
        return running.finish(process)
    finally:
        process.kill()
        process.wait()


def _create(connection: Connection, path: str) -> None:
    connection.expect(201, make_request("PUT", path, content_type=CONTENT_TYPE))


def _write(connection: Connection, path: str, batches: int) -> None:
    """Append, then close."""
    request = batch_request(path)
    for _ in range(batches):
        connection.expect(204, request)
    head = f"POST {STREAMS_AT}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nStream-Closed: true\r\n"
    connection.expect(204, f"{head}Content-Length: 0\r\n\r\n".encode("ascii"))


WORKLOAD = Workload(
    name="client_tail",
    question="How many messages per second can a program read with a client?",
    run=run,
    rows=(
        Row("read_tailrace_sync_per_second", "tail_json, catching up", "/s", True),
        Row("read_tailrace_sync_processor_us", "  its processor time, each", "µs", False),
        Row("read_tailrace_async_per_second", "tail_json, catching up, asyncio", "/s", True),
        Row("read_tailrace_async_processor_us", "  its processor time, each", "µs", False),
        Row("read_tailrace_chunks_per_second", "tail, catching up", "/s", True),
        Row("read_tailrace_chunks_processor_us", "  its processor time, each", "µs", False),
        Row("read_npm_sync_per_second", "npm client, catching up", "/s", True),
        Row("read_npm_sync_processor_us", "  its processor time, each", "µs", False),
        Row("read_pypi_sync_per_second", "PyPI client, catching up", "/s", True),
        Row("read_pypi_sync_processor_us", "  its processor time, each", "µs", False),
        Row("read_pypi_async_per_second", "PyPI client, catching up, asyncio", "/s", True),
        Row("read_pypi_async_processor_us", "  its processor time, each", "µs", False),
        Row("follow_tailrace_sync_per_second", "tail_json, following", "/s", True),
        Row("follow_tailrace_sync_processor_us", "  its processor time, each", "µs", False),
        Row("follow_tailrace_async_per_second", "tail_json, following, asyncio", "/s", True),
        Row("follow_tailrace_async_processor_us", "  its processor time, each", "µs", False),
        Row("follow_npm_sync_per_second", "npm client, following", "/s", True),
        Row("follow_npm_sync_processor_us", "  its processor time, each", "µs", False),
        Row("follow_pypi_sync_per_second", "PyPI client, following", "/s", True),
        Row("follow_pypi_sync_processor_us", "  its processor time, each", "µs", False),
        Row("follow_pypi_async_per_second", "PyPI client, following, asyncio", "/s", True),
        Row("follow_pypi_async_processor_us", "  its processor time, each", "µs", False),
    ),
    peers=(OURS,),
)
