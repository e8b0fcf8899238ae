"""What do 1,000 long-poll readers of one stream cost the server behind nginx?

nginx runs with the configuration of deploy/nginx, except for addresses and paths.
1,000 readers in another process poll one stream through it; one writer appends
256 bytes about once a second, and then nothing for about two poll timeouts.
A relay between nginx and the server counts requests. Every reader must receive
every message exactly once and in order.

A reader that waits in nginx for another reader's response receives it within half a
second, when nginx checks again: that is most of the latency measured here.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import proxy
from benchmarks.blocking import Connection, make_request
from benchmarks.counting_relay import CountingRelay, counting
from benchmarks.long_pollers import LAST
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
from benchmarks.subscribers import make_message
from tools.debian import find

PATH = "collapse"
CONTENT_TYPE = "text/plain"
# Random, so that appends do not always come at the same moment between two checks of nginx.
GAP_SECONDS = (0.8, 1.3)


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Run nginx in front of the server, connect the readers, append."""
    if find("nginx") is None:
        progress(f"skipped: {proxy.HOW_TO_INSTALL}")
        return Outcome()
    files = 2 * sizes.collapse_readers + 1024
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-nginx-") as directory,
        counting(server.port) as relay,
        proxy.running(Path(directory), f"127.0.0.1:{relay.port}", connections=files) as port,
        Connection(server.host, server.port) as writer,
    ):
        writer.expect(201, make_request("PUT", PATH, content_type=CONTENT_TYPE))
        outcome = follow(writer, relay, port, sizes)
    progress(", ".join(f"{name} {value:,.1f}" for name, value in outcome.metrics.items()))
    return outcome


def follow(writer: Connection, relay: CountingRelay, port: int, sizes: Sizes) -> Outcome:
    """Append while readers poll; returns their counters and the requests at the server."""
    rng = random.Random(1)
    messages, readers = sizes.collapse_messages, sizes.collapse_readers
    arguments = ["127.0.0.1", str(port), PATH, str(readers)]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.long_pollers", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise BenchmarkError("the readers could not connect")
        time.sleep(GAP_SECONDS[1])
        first = relay.requests
        for number in range(messages):
            _append(writer, make_message(number, time.monotonic_ns()))
            time.sleep(rng.uniform(*GAP_SECONDS))
        busy = relay.requests - first
        time.sleep(sizes.collapse_quiet_seconds)
        quiet = relay.requests - first - busy
        _append(writer, LAST)
        found: dict[str, Any] = json.loads(process.communicate(timeout=120)[0])
    finally:
        process.kill()
        process.wait()
    return Outcome(
        {
            "per_message": busy / messages,
            "while_quiet": quiet,
            "in_all": relay.requests,
            "responses": sum(found["statuses"].values()),
            "p50_ms": found["p50_ms"],
            "p99_ms": found["p99_ms"],
        },
        [
            exactly("messages received", messages * readers, found["received"]),
            exactly("messages out of order or duplicated", 0, found["wrong"]),
        ],
    )


def _append(writer: Connection, body: bytes) -> None:
    writer.expect(204, make_request("POST", PATH, content_type=CONTENT_TYPE, body=body))


WORKLOAD = Workload(
    name="collapse",
    question="What do 1,000 long-poll readers of one stream cost the server behind nginx?",
    run=run,
    rows=(
        Row("per_message", "requests at the server per message", "", False, (AtMost(3.0),)),
        Row("while_quiet", "requests at the server in 65 s of silence", "", False, (AtMost(12.0),)),
        Row("in_all", "requests at the server in all", "", False),
        Row("responses", "responses to readers in all", "", True),
        Row("p50_ms", "append to reader through nginx, p50", "ms", False),
        Row("p99_ms", "append to reader through nginx, p99", "ms", False),
    ),
    peers=(OURS,),
)
