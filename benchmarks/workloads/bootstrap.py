"""How long do 100 clients wait that bootstrap from one stream at once?

A stream of 200 messages of 1 KiB has a snapshot of 64 KiB at its middle, so
each response is the snapshot and the 100 messages after it. 100 connections
request it repeatedly; the time is from the request to the last byte. Each response
must have the right length, and one is parsed and compared.
"""

from __future__ import annotations

import email.policy
import time
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser

from benchmarks.blocking import Connection, make_request
from benchmarks.client import run_requests
from benchmarks.machine import PeakMemory
from benchmarks.model import (
    OURS,
    OURS_MEMORY,
    AtMost,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    Workload,
    exactly,
)

BUCKET = "bench"
STREAM = f"{BUCKET}/state"
CONTENT_TYPE = "application/octet-stream"
MESSAGES = 200
MESSAGE_BYTES = 1024
SNAPSHOT = b"s" * (64 << 10)
_SENT = b"\r\nX-Sent: "
"""A header with the time of the request; the server ignores it."""


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Fill the stream, check one response, then send requests from all clients."""
    outcome = Outcome()
    with Connection(server.host, server.port) as connection:
        _fill(connection)
        length = _check_one(connection, outcome)
    waits: list[float] = []
    right = 0

    def requests() -> Iterator[bytes]:
        for _ in range(sizes.bootstraps):
            request = make_request("GET", f"{STREAM}/bootstrap", root="/")
            yield request[:-4] + _SENT + str(time.perf_counter_ns()).encode() + b"\r\n\r\n"

    def on_response(request: bytes, status: int, head: bytes, body_bytes: int) -> None:
        nonlocal right
        sent = int(request.partition(_SENT)[2].split(b"\r", 1)[0])
        waits.append((time.perf_counter_ns() - sent) / 1e6)
        right += status == 200 and body_bytes == length

    with PeakMemory(server.pid) as peak:
        clients = sizes.bootstrap_clients
        seconds = run_requests(server.host, server.port, clients, requests(), on_response)
    waits.sort()
    outcome.checks.append(exactly("whole bootstraps", sizes.bootstraps, right))
    outcome.metrics |= {
        "p50_ms": waits[len(waits) // 2],
        "p99_ms": waits[len(waits) * 99 // 100],
        "megabytes_per_second": sizes.bootstraps * length / seconds / 1e6,
        "peak_megabytes": peak.megabytes,
    }
    progress(", ".join(f"{name} {value:,.1f}" for name, value in outcome.metrics.items()))
    return outcome


def _message(number: int) -> bytes:
    return f"{number:08d} ".encode().ljust(MESSAGE_BYTES, b"x")


def _fill(connection: Connection) -> None:
    connection.expect(201, make_request("PUT", BUCKET, root="/"))
    connection.expect(201, make_request("PUT", STREAM, content_type=CONTENT_TYPE, root="/"))
    middle = tail = ""
    for number in range(MESSAGES):
        if number == MESSAGES // 2:
            middle = tail
        body = _message(number)
        request = make_request("POST", STREAM, content_type=CONTENT_TYPE, body=body, root="/")
        tail = connection.expect(204, request).headers["stream-next-offset"]
    where = f"{STREAM}/snapshot/{middle}"
    connection.expect(204, make_request("PUT", where, body=SNAPSHOT, root="/"))


def _check_one(connection: Connection, outcome: Outcome) -> int:
    """Compare one response with what was stored; its length."""
    body = bytearray()
    request = make_request("GET", f"{STREAM}/bootstrap", root="/")
    response = connection.expect(200, request, body.extend)
    head = f"Content-Type: {response.headers['content-type']}\r\n\r\n".encode()
    parsed: Message = BytesParser(policy=email.policy.HTTP).parsebytes(head + bytes(body))
    parts = [part.get_payload(decode=True) for part in parsed.walk() if not part.is_multipart()]
    expected = [SNAPSHOT, *(_message(number) for number in range(MESSAGES // 2, MESSAGES))]
    same = sum(one == other for one, other in zip(parts, expected, strict=True))
    outcome.checks.append(exactly("parts that are as stored", len(expected), same))
    return response.body_bytes


WORKLOAD = Workload(
    name="bootstrap",
    question="How long do 100 clients wait that bootstrap from one stream at once?",
    run=run,
    rows=(
        Row("p50_ms", "bootstrap of 165 KiB, 100 clients, p50", "ms", False),
        Row("p99_ms", "bootstrap of 165 KiB, 100 clients, p99", "ms", False),
        Row("megabytes_per_second", "bootstraps, all clients", "MB/s", True),
        Row("peak_megabytes", "resident during it, at most", "MB", False, (AtMost(400.0),)),
    ),
    peers=(OURS, OURS_MEMORY),
)
