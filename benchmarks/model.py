"""Types that the benchmarks share: sizes, workloads, checks and goals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

OURS = "ours"
OURS_MEMORY = "ours-memory"
REFERENCE_FILE = "reference-file"
REFERENCE_MEMORY = "reference-memory"

ALL_PEERS = (OURS, REFERENCE_FILE, REFERENCE_MEMORY, OURS_MEMORY)

STREAMS_AT = "/v1/stream/"
"""Both servers have their streams under this path."""


class BenchmarkError(Exception):
    """A measurement is not possible; the message says what to do."""


@dataclass(frozen=True)
class Sizes:
    """How much work each measurement does."""

    name: str
    wrk_seconds: int
    wrk_warm_up_seconds: int
    json_batches: int
    json_warm_up_batches: int
    catchup_bytes: int
    catchup_passes: int
    slow_readers: int
    slow_seconds: int
    sse_subscribers: int
    sse_seconds: int
    create_repeats: int
    many_streams: int
    many_restarts: int
    many_touches: int
    growth_streams: tuple[int, ...]
    growth_seconds: int
    bootstrap_clients: int
    bootstraps: int
    forked_bytes: int
    forks: int
    listed_streams: int
    snapshot_bytes: int
    snapshot_seconds: int
    spark_messages: int
    spark_streams: int
    fold_messages: int
    fold_streams: int
    fold_keys: int
    planned_streams: tuple[int, ...]
    freshness_rows: int
    collapse_readers: int
    collapse_messages: int
    collapse_quiet_seconds: int
    hostile_seconds: int
    hostile_idle: int
    hostile_slow: int
    hostile_stalled: int
    subscriptions: int
    linked_streams: int
    subscription_appends: int


FULL = Sizes(
    name="full",
    wrk_seconds=8,
    wrk_warm_up_seconds=1,
    json_batches=100,
    json_warm_up_batches=10,
    catchup_bytes=60_000_000,
    catchup_passes=3,
    slow_readers=200,
    slow_seconds=10,
    sse_subscribers=1_000,
    sse_seconds=10,
    create_repeats=5,
    many_streams=1_000_000,
    many_restarts=3,
    many_touches=20_000,
    growth_streams=(10, 1_000, 100_000),
    growth_seconds=8,
    bootstrap_clients=100,
    bootstraps=2_000,
    forked_bytes=1_000_000_000,
    forks=300,
    listed_streams=1_000_000,
    snapshot_bytes=1 << 30,
    snapshot_seconds=8,
    spark_messages=4_000_000,
    spark_streams=10_000,
    fold_messages=5_000_000,
    fold_streams=5_000,
    fold_keys=100_000,
    planned_streams=(100, 10_000, 100_000),
    freshness_rows=120,
    collapse_readers=1_000,
    collapse_messages=20,
    collapse_quiet_seconds=65,
    hostile_seconds=10,
    hostile_idle=10_000,
    hostile_slow=500,
    hostile_stalled=100,
    subscriptions=10_000,
    linked_streams=100_000,
    subscription_appends=40_000,
)

QUICK = Sizes(
    name="quick",
    wrk_seconds=4,
    wrk_warm_up_seconds=1,
    json_batches=50,
    json_warm_up_batches=5,
    catchup_bytes=60_000_000,
    catchup_passes=2,
    slow_readers=200,
    slow_seconds=5,
    sse_subscribers=1_000,
    sse_seconds=5,
    create_repeats=3,
    many_streams=100_000,
    many_restarts=3,
    many_touches=20_000,
    growth_streams=(10, 1_000, 100_000),
    growth_seconds=4,
    bootstrap_clients=100,
    bootstraps=1_000,
    forked_bytes=1_000_000_000,
    forks=100,
    listed_streams=100_000,
    snapshot_bytes=1 << 30,
    snapshot_seconds=8,
    spark_messages=1_000_000,
    spark_streams=2_000,
    fold_messages=1_000_000,
    fold_streams=1_000,
    fold_keys=20_000,
    planned_streams=(100, 10_000),
    freshness_rows=40,
    collapse_readers=1_000,
    collapse_messages=10,
    collapse_quiet_seconds=35,
    hostile_seconds=6,
    hostile_idle=10_000,
    hostile_slow=500,
    hostile_stalled=100,
    subscriptions=10_000,
    linked_streams=100_000,
    subscription_appends=20_000,
)

SMOKE = Sizes(
    name="smoke",
    wrk_seconds=1,
    wrk_warm_up_seconds=0,
    json_batches=3,
    json_warm_up_batches=1,
    catchup_bytes=1_000_000,
    catchup_passes=1,
    slow_readers=10,
    slow_seconds=1,
    sse_subscribers=100,
    sse_seconds=2,
    create_repeats=1,
    many_streams=2_000,
    many_restarts=1,
    many_touches=500,
    growth_streams=(10, 100, 1_000),
    growth_seconds=1,
    bootstrap_clients=20,
    bootstraps=100,
    forked_bytes=3_145_728,
    forks=5,
    listed_streams=3_000,
    snapshot_bytes=8 << 20,
    snapshot_seconds=1,
    spark_messages=20_000,
    spark_streams=50,
    fold_messages=20_000,
    fold_streams=20,
    fold_keys=500,
    planned_streams=(10, 300),
    freshness_rows=5,
    collapse_readers=100,
    collapse_messages=3,
    collapse_quiet_seconds=0,
    hostile_seconds=1,
    hostile_idle=300,
    hostile_slow=30,
    hostile_stalled=10,
    subscriptions=50,
    linked_streams=200,
    subscription_appends=500,
)


@dataclass(frozen=True)
class Check:
    """A value that must be right for the measurement to be valid."""

    name: str
    expected: str
    found: str
    right: bool


def exactly(name: str, expected: int, found: int) -> Check:
    """A check that holds when the two numbers are the same."""
    return Check(name, str(expected), str(found), expected == found)


def between(name: str, low: int, high: int, found: int) -> Check:
    """A check that holds when ``found`` lies from ``low`` to ``high``."""
    return Check(name, f"{low} to {high}", str(found), low <= found <= high)


@dataclass
class Outcome:
    """The result of one round of one workload on one server."""

    metrics: dict[str, float] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)


class Server(Protocol):
    """A running server, as a workload sees it."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def pid(self) -> int: ...

    @property
    def start_seconds(self) -> float: ...

    def restart(self, *, kill: bool = False) -> None:
        """Stop the server and start it again on the same data directory."""


Progress = Callable[[str], None]
Run = Callable[[Server, Sizes, Progress], Outcome]


@dataclass(frozen=True)
class TimesBetter:
    """The goal of being at least ``least`` times better than ``peer``."""

    peer: str
    least: float


@dataclass(frozen=True)
class AtMost:
    """The goal of our own figure being no greater than ``most``."""

    most: float


@dataclass(frozen=True)
class AtLeast:
    """The goal of our own figure being no less than ``least``."""

    least: float


Goal = TimesBetter | AtMost | AtLeast


@dataclass(frozen=True)
class Row:
    """One line of the final table: a metric and the goals set for it."""

    metric: str
    title: str
    unit: str
    more_is_better: bool
    goals: tuple[Goal, ...] = ()


@dataclass(frozen=True)
class Workload:
    """A measurement: its question, its servers, and the rows of its result."""

    name: str
    question: str
    run: Run
    rows: tuple[Row, ...]
    peers: tuple[str, ...] = ALL_PEERS
    one_round: bool = False
    options: tuple[str, ...] = ()
    """More options for `tailrace serve`."""
