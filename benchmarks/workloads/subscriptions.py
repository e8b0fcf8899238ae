"""Do appends slow down as the number of subscriptions and of linked streams grows?

The same appends, 256 bytes from 64 connections to 64 streams, are measured without
subscriptions, with one that watches these streams, with 10,000 more that watch
others, and with 100,000 more streams that the first one watches. Then all
subscriptions are deleted and the appends are measured once more: the figure without
subscriptions is the mean of both, and the ratios refer to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from benchmarks.blocking import make_request
from benchmarks.client import Statuses, run_requests
from benchmarks.load import BODY_BYTES, CONTENT_TYPE, create_streams
from benchmarks.model import (
    OURS,
    AtLeast,
    Outcome,
    Progress,
    Row,
    Server,
    Sizes,
    Workload,
    exactly,
)

CONNECTIONS = 64
STREAMS = 64
PREFIX = "watched/"
BELOW = "__ds/subscriptions/"


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Measure the same appends with more and more subscriptions."""
    outcome = Outcome()
    create_streams(server, PREFIX, range(STREAMS))
    _append(server, sizes, outcome)  # warm up
    rates = {"none": _append(server, sizes, outcome)}
    _subscribe(server, ["first"], outcome)
    rates["one"] = _append(server, sizes, outcome)
    progress(f"one subscription: {rates['one'] / rates['none']:.2f}")
    others = [f"other-{number}" for number in range(sizes.subscriptions)]
    _subscribe(server, others, outcome)
    rates["many"] = _append(server, sizes, outcome)
    progress(f"{sizes.subscriptions:,} subscriptions: {rates['many'] / rates['none']:.2f}")
    body = b"x"
    _all(
        server,
        (
            make_request("PUT", f"{PREFIX}{number}", content_type=CONTENT_TYPE, body=body)
            for number in range(STREAMS, STREAMS + sizes.linked_streams)
        ),
        201,
        sizes.linked_streams,
        outcome,
    )
    rates["linked"] = _append(server, sizes, outcome)
    progress(f"{sizes.linked_streams:,} linked streams: {rates['linked'] / rates['none']:.2f}")
    names = ["first", *others]
    deletes = (make_request("DELETE", BELOW + name) for name in names)
    _all(server, deletes, 204, len(names), outcome)
    none = (rates.pop("none") + _append(server, sizes, outcome)) / 2
    outcome.metrics["appends_per_second"] = none
    for name, rate in rates.items():
        outcome.metrics[f"{name}_ratio"] = rate / none
    return outcome


def _subscribe(server: Server, names: list[str], outcome: Outcome) -> None:
    def body(name: str) -> bytes:
        pattern = f"{PREFIX}*" if name == "first" else f"{name}/*"
        config = {"type": "pull-wake", "pattern": pattern, "wake_stream": "wakes"}
        return json.dumps(config).encode()

    requests = (
        make_request("PUT", BELOW + name, content_type="application/json", body=body(name))
        for name in names
    )
    _all(server, requests, 201, len(names), outcome)


def _append(server: Server, sizes: Sizes, outcome: Outcome) -> float:
    """Appends per second."""
    count = sizes.subscription_appends
    body = b"x" * BODY_BYTES
    requests = [
        make_request("POST", f"{PREFIX}{i % STREAMS}", content_type=CONTENT_TYPE, body=body)
        for i in range(count)
    ]
    return count / _all(server, requests, 204, count, outcome)


def _all(
    server: Server, requests: Iterable[bytes], status: int, count: int, outcome: Outcome
) -> float:
    """Send requests that must all have one status; returns the seconds it took."""
    found = Statuses()
    seconds = run_requests(server.host, server.port, CONNECTIONS, requests, found)
    outcome.checks.append(exactly(f"responses {status}", count, found.counts.get(status, 0)))
    return seconds


WORKLOAD = Workload(
    name="subscriptions",
    question="Do appends slow down as subscriptions and linked streams grow?",
    run=run,
    rows=(
        Row("appends_per_second", "appends without subscriptions", "/s", True),
        Row("one_ratio", "with 1 that watches them, as a ratio", "", True, (AtLeast(0.9),)),
        Row("many_ratio", "with 10,000 more, as a ratio", "", True, (AtLeast(0.9),)),
        Row("linked_ratio", "with 100,000 linked streams, as a ratio", "", True, (AtLeast(0.9),)),
    ),
    peers=(OURS,),
)
