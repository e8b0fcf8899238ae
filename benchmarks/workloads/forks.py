"""Does a fork cost more than a creation, and a read through a chain more than a plain read?

A stream of 1 GB is forked repeatedly; the median of the requests is compared with that of plain
creations, taken in turns. Then the same data is read twice: from one stream, and from the end of a
chain of 100 forks that has a hundredth of it at each level. Both must read as many bytes as were
appended, and the fork must end with what was appended to it.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.blocking import Connection, make_request
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

CONTENT_TYPE = "application/octet-stream"
APPEND_BYTES = 1 << 20
MESSAGE_BYTES = 16 << 10
DEPTH = 100


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    outcome = Outcome()
    with Connection(server.host, server.port) as connection:
        _compare_creation(connection, sizes, outcome)
        _compare_reads(connection, sizes, outcome)
    progress(", ".join(f"{name} {value:,.2f}" for name, value in outcome.metrics.items()))
    return outcome


def _fork(source: str, target: str) -> bytes:
    """A PUT that forks a stream."""
    request = make_request("PUT", target)
    return request[:-2] + f"Stream-Forked-From: /v1/stream/{source}\r\n\r\n".encode()


def _put(name: str) -> bytes:
    return make_request("PUT", name, content_type=CONTENT_TYPE)


def _append(connection: Connection, name: str, body: bytes) -> None:
    connection.expect(204, make_request("POST", name, content_type=CONTENT_TYPE, body=body))


def _milliseconds(connection: Connection, request: bytes) -> float:
    start = time.perf_counter()
    connection.expect(201, request)
    return (time.perf_counter() - start) * 1e3


def _compare_creation(connection: Connection, sizes: Sizes, outcome: Outcome) -> None:
    connection.expect(201, _put("large"))
    body = b"x" * APPEND_BYTES
    appends = max(1, sizes.forked_bytes // APPEND_BYTES)
    for _ in range(appends):
        _append(connection, "large", body)
    creates, forks = [], []
    for number in range(sizes.forks):
        creates.append(_milliseconds(connection, _put(f"plain/{number}")))
        forks.append(_milliseconds(connection, _fork("large", f"fork/{number}")))
    _append(connection, "fork/0", b"the end")
    tail = connection.expect(200, make_request("HEAD", "fork/0")).headers["stream-next-offset"]
    expected = appends * APPEND_BYTES + len(b"the end")
    outcome.checks.append(exactly("bytes of a fork", expected, int(tail.partition("_")[2])))
    create_ms, fork_ms = statistics.median(creates), statistics.median(forks)
    outcome.metrics |= {
        "create_ms": create_ms,
        "fork_ms": fork_ms,
        "fork_to_create": fork_ms / create_ms,
    }


def _compare_reads(connection: Connection, sizes: Sizes, outcome: Outcome) -> None:
    body = b"y" * MESSAGE_BYTES
    messages = max(1, sizes.catchup_bytes // MESSAGE_BYTES // DEPTH)
    connection.expect(201, _put("one"))
    connection.expect(201, _put("chain/0"))
    for level in range(DEPTH):
        if level:
            connection.expect(201, _fork(f"chain/{level - 1}", f"chain/{level}"))
        for _ in range(messages):
            _append(connection, "one", body)
            _append(connection, f"chain/{level}", body)
    rates = {}
    for name in ("one", f"chain/{DEPTH - 1}"):
        start = time.perf_counter()
        size = 0
        for _ in range(sizes.catchup_passes):
            size += connection.read_stream(name)
        rates[name] = size / (time.perf_counter() - start) / 1e6
        expected = sizes.catchup_passes * DEPTH * messages * MESSAGE_BYTES
        outcome.checks.append(exactly(f"bytes read of {name}", expected, size))
    plain, chain = rates.values()
    outcome.metrics |= {
        "plain_megabytes_per_second": plain,
        "chain_megabytes_per_second": chain,
        "chain_to_plain": chain / plain,
    }


WORKLOAD = Workload(
    name="forks",
    question="Does a fork of 1 GB cost more than a creation, or a read through 100 forks more?",
    run=run,
    rows=(
        Row("create_ms", "create a stream, one connection, median", "ms", False),
        Row("fork_ms", "fork a stream of 1 GB, median", "ms", False),
        Row("fork_to_create", "a fork, compared with a creation", "×", False, (AtMost(2.0),)),
        Row("plain_megabytes_per_second", "read one stream", "MB/s", True),
        Row("chain_megabytes_per_second", "read through a chain of 100 forks", "MB/s", True),
        Row("chain_to_plain", "the chain, compared with one stream", "×", True),
    ),
    peers=(OURS, OURS_MEMORY),
)
