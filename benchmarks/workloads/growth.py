"""Do appends slow down as the number of streams grows?

256-byte appends from 64 connections, spread evenly over 10, then 1,000, then
100,000 streams on one server. The figure with a goal is the fastest of the
three rates divided by the slowest.
"""

from __future__ import annotations

from benchmarks.load import append_load, check_load, create_streams, settled_bytes
from benchmarks.model import OURS, AtMost, Outcome, Progress, Row, Server, Sizes, Workload

CONNECTIONS = 64
SHARES = ("few", "some", "many")


def run(server: Server, sizes: Sizes, progress: Progress) -> Outcome:
    """Load one server with more and more streams."""
    outcome = Outcome()
    rates: list[float] = []
    if sizes.wrk_warm_up_seconds:
        create_streams(server, "warm-", range(CONNECTIONS))
        append_load(server, "warm-", CONNECTIONS, CONNECTIONS, sizes.wrk_warm_up_seconds)
    for share, streams in zip(SHARES, sizes.growth_streams, strict=True):
        prefix = f"growth-{share}-"
        create_streams(server, prefix, range(streams))
        load = append_load(server, prefix, streams, CONNECTIONS, sizes.growth_seconds)
        name = f"{streams:,} streams"
        progress(f"{name}: {load.per_second:,.0f} appends/s")
        rates.append(load.per_second)
        outcome.metrics[f"{share}_per_second"] = load.per_second
        outcome.metrics[f"{share}_streams"] = streams
        after = settled_bytes(server, prefix, streams)
        outcome.checks += check_load(name, CONNECTIONS, load, 0, after)
    outcome.metrics["spread"] = max(rates) / min(rates)
    return outcome


WORKLOAD = Workload(
    name="growth",
    question="Do appends slow down as the number of streams grows?",
    run=run,
    rows=(
        Row("few_per_second", "appends, few streams", "/s", True),
        Row("some_per_second", "appends, some streams", "/s", True),
        Row("many_per_second", "appends, many streams", "/s", True),
        Row("spread", "appends, fastest / slowest of these", "x", False, (AtMost(2.0),)),
    ),
    peers=(OURS,),
)
