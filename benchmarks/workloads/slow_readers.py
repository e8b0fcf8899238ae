"""How much memory do 200 slow readers of a 60 MB stream take?

Each reader requests the whole stream in one response, with a small receive
buffer, and takes a little of it now and then. The resident memory of the server
is sampled meanwhile, and appends to another stream are timed. At the end some
readers read the rest, whose length is checked; the others disconnect.

Not answered: how fast one reader is, see catchup.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

from benchmarks.batches import CONTENT_TYPE, MESSAGE_BYTES, MESSAGES, batch_request
from benchmarks.blocking import Connection, make_request, parse_head
from benchmarks.machine import PeakMemory, allow_many_files, resident_megabytes
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

PATH = "slow"
OTHER = "slow-other"
RECEIVE_BUFFER_BYTES = 32 << 10
TAKEN_BYTES = 8 << 10
ROUND_SECONDS = 0.1
FINISHING = 3
TIMEOUT_SECONDS = 60.0


class SlowReader:
    """One response that is read a little at a time."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self._socket.settimeout(TIMEOUT_SECONDS)
        self._socket.connect((server.host, server.port))
        self._socket.sendall(make_request("GET", f"{PATH}?offset=-1"))
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, body = received.partition(b"\r\n\r\n")
        status, headers = parse_head(head)
        if status != 200:
            raise BenchmarkError(f"a slow reader got {status}")
        self.length = int(headers["content-length"])
        self.taken = len(body)

    def take(self) -> None:
        """Read some bytes."""
        self.taken += len(self._receive())

    def finish(self) -> int:
        """Read the rest; returns the number of bytes of the body."""
        while self.taken < self.length:
            self.taken += len(self._receive(1 << 20))
        return self.taken

    def close(self) -> None:
        self._socket.close()

    def _receive(self, size: int = TAKEN_BYTES) -> bytes:
        data = self._socket.recv(min(size, 1 << 20))
        if not data:
            raise BenchmarkError("the server closed the connection of a slow reader")
        return data


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Fill the stream, connect the readers, and let them read slowly."""
    allow_many_files()
    outcome = Outcome()
    batches = -(-sizes.catchup_bytes // (MESSAGES * MESSAGE_BYTES))
    waits: list[float] = []
    with Connection(server.host, server.port) as connection, ExitStack() as stack:
        for path in (PATH, OTHER):
            connection.expect(201, make_request("PUT", path, content_type=CONTENT_TYPE))
        request = batch_request(PATH)
        for _ in range(batches):
            connection.expect(204, request)
        append = make_request("POST", OTHER, content_type=CONTENT_TYPE, body=b"{}")
        before = resident_megabytes(server.pid)
        with PeakMemory(server.pid) as peak:
            readers: list[SlowReader] = []
            for _ in range(sizes.slow_readers):
                readers.append(SlowReader(server))
                stack.callback(readers[-1].close)
            end = time.monotonic() + sizes.slow_seconds
            while time.monotonic() < end:
                for reader in readers:
                    reader.take()
                began = time.perf_counter()
                connection.expect(204, append)
                waits.append((time.perf_counter() - began) * 1000)
                time.sleep(ROUND_SECONDS)
        length = batches * MESSAGES * (MESSAGE_BYTES + 1) + 1
        for reader in readers[:FINISHING]:
            outcome.checks.append(exactly("bytes of a slow response", length, reader.finish()))
    outcome.metrics |= {
        "before_megabytes": before,
        "peak_megabytes": peak.megabytes,
        "kilobytes_each": (peak.megabytes - before) * 1000 / sizes.slow_readers,
        "append_max_ms": max(waits),
    }
    progress(", ".join(f"{name} {value:,.1f}" for name, value in outcome.metrics.items()))
    return outcome


WORKLOAD = Workload(
    name="slow_readers",
    question="How much memory do 200 slow readers of a 60 MB stream take?",
    run=run,
    rows=(
        Row("before_megabytes", "resident before slow readers", "MB", False),
        Row("peak_megabytes", "resident with 200 slow readers", "MB", False, (AtMost(400.0),)),
        Row("kilobytes_each", "memory for each slow reader", "kB", False, (AtMost(1500.0),)),
        Row("append_max_ms", "longest append beside slow readers", "ms", False),
    ),
    peers=(OURS,),
)
