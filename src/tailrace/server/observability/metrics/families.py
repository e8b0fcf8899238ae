"""
The metric families of the page, made from the counters of `Metrics` and of the engine.

`HELP` has every name and its meaning; docs/guides/monitoring.md has the same table, and a test
compares the two.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from tailrace import __version__
from tailrace.engine import errors as engine_errors
from tailrace.engine.meters import OTHER, Histogram
from tailrace.protocol import errors as protocol_errors
from tailrace.protocol import subscription_errors
from tailrace.protocol.errors import Refusal
from tailrace.server import errors as server_errors
from tailrace.server.guard.access import errors as access_errors
from tailrace.server.guard.limits import errors as limits_errors
from tailrace.server.subscriptions import errors as webhook_errors

if TYPE_CHECKING:
    from tailrace.server.observability.metrics.metrics import Metrics

__all__ = ["HELP", "add_log", "collect"]

_ERRORS: Final = (
    protocol_errors, engine_errors, server_errors, access_errors, limits_errors,
    subscription_errors, webhook_errors,
)  # fmt: skip
_CODES: Final = sorted(
    value.code
    for module in _ERRORS
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Refusal) and "code" in vars(value)
)
"""The codes of all refusals."""
_STORED: Final = "tailrace_stored_bytes"
HELP: Final = {
    "tailrace_build_info": "Version of tailrace, and its engine.",
    "tailrace_requests_total": "Responses, by operation and status.",
    "tailrace_refused_total": "Refusals, by the code that docs/errors.md explains.",
    "tailrace_append_seconds": "Time from an append to its durable response.",
    "tailrace_appended_bytes_total": "Bytes that became durable in streams.",
    "tailrace_appended_messages_total": "Messages that became durable in streams.",
    "tailrace_read_bytes_total": "Bytes of streams in responses to reads, as sent.",
    "tailrace_commits_total": "Group commits.",
    "tailrace_commit_batch_records": "Appends that shared one group commit.",
    "tailrace_commit_sync_seconds": "Time of one fsync.",
    "tailrace_live_readers": "Readers that wait for new data.",
    "tailrace_connections": "Open connections.",
    "tailrace_streams_hot": "Streams whose state is in memory.",
    "tailrace_stream_cache_hits_total": "Requests for streams whose state was in memory.",
    "tailrace_stream_cache_misses_total": "Requests for streams whose state was not in memory.",
    "tailrace_block_cache_hits_total": "Blocks of tables that RocksDB found in memory.",
    "tailrace_block_cache_misses_total": "Blocks of tables that RocksDB had to read.",
    _STORED: "Bytes on disk, by kind.",
    "tailrace_reclaimed_bytes_total": "Bytes of removed streams and snapshots.",
    "tailrace_disk_free_bytes": "Disk space for appends, beyond the reserve.",
    "tailrace_buckets": "Buckets.",
    "tailrace_bucket_streams": "Streams of a bucket.",
    "tailrace_bucket_bytes": "Bytes that the streams of a bucket hold.",
    "tailrace_bucket_appends_total": "Appends to streams of a bucket.",
    "tailrace_subscriptions": "Subscriptions.",
    "tailrace_webhooks_total": "Attempts to send a webhook, by result.",
}


_LABELS: Final = {
    "tailrace_requests_total": ("operation", "status"),
    "tailrace_refused_total": ("code",),
    "tailrace_read_bytes_total": ("operation",),
    "tailrace_live_readers": ("kind",),
    _STORED: ("kind",),
    "tailrace_bucket_streams": ("bucket",),
    "tailrace_bucket_bytes": ("bucket",),
    "tailrace_bucket_appends_total": ("bucket",),
    "tailrace_webhooks_total": ("result",),
}


def collect(metrics: "Metrics") -> Iterator[Metric]:
    """The families of a scrape."""
    build = InfoMetricFamily("tailrace_build", HELP["tailrace_build_info"])
    build.add_metric((), {"version": __version__, "engine": metrics.settings.engine})
    yield build
    for name, value in _values(metrics).items():
        if isinstance(value, Histogram):
            yield _histogram(name, value)
        elif value is not None:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            labels = _LABELS.get(name, ())
            family = kind(name, HELP[name], labels=labels)
            for key, number in value.items() if labels else [((), value)]:
                family.add_metric((key,) if isinstance(key, str) else key, number)
            yield family


def _values(metrics: "Metrics") -> dict[str, Any]:
    """Each is a number, a histogram, or the numbers by label; None if the engine has none."""
    engine, live = metrics.engine, metrics.live
    meters, cache, store = engine.commit.meters, engine.stream_cache, engine.store
    free = store.free_bytes()
    block_cache = store.cache_lookups() or (None, None)
    buckets = {
        key.decode(): state
        for key in meters.bucket_appends
        if (state := engine.buckets.entry(key).durable) is not None
    }
    streams = {name: state.streams for name, state in buckets.items()}
    sizes = {name: state.bytes for name, state in buckets.items()}
    appends = {key.decode(): count for key, count in meters.bucket_appends.items()}
    return {
        "tailrace_requests_total": {
            (operation, str(status)): count
            for (operation, status), count in sorted(metrics.requests.items())
        },
        # Every code, from zero on: Prometheus does not count the first increase otherwise.
        "tailrace_refused_total": {**dict.fromkeys(_CODES, 0), **metrics.refusals},
        "tailrace_append_seconds": metrics.append_s,
        "tailrace_appended_bytes_total": meters.appended_bytes,
        "tailrace_appended_messages_total": meters.appended_messages,
        "tailrace_read_bytes_total": {
            **metrics.read_bytes,
            "read": metrics.read_bytes["read"] + live.reads.compressed_bytes,
            "sse": live.sent_bytes,
        },
        "tailrace_commits_total": meters.commits,
        "tailrace_commit_batch_records": meters.commit_records,
        "tailrace_commit_sync_seconds": meters.sync_s,
        "tailrace_live_readers": dict(zip(("long-poll", "sse"), live.count(), strict=True)),
        "tailrace_connections": metrics.connections(),
        "tailrace_streams_hot": len(cache),
        "tailrace_stream_cache_hits_total": cache.hits,
        "tailrace_stream_cache_misses_total": cache.misses,
        "tailrace_block_cache_hits_total": block_cache[0],
        "tailrace_block_cache_misses_total": block_cache[1],
        _STORED: store.sizes(),
        "tailrace_reclaimed_bytes_total": meters.reclaimed_bytes,
        "tailrace_disk_free_bytes": None if free is None else max(0, free),
        "tailrace_buckets": meters.buckets,
        # Buckets that are counted by name, and the total of all others.
        "tailrace_bucket_streams": {
            **streams,
            OTHER: meters.bucketed_streams - sum(streams.values()),
        },
        "tailrace_bucket_bytes": {**sizes, OTHER: meters.bucketed_bytes - sum(sizes.values())},
        "tailrace_bucket_appends_total": {**appends, OTHER: meters.other_appends},
        "tailrace_subscriptions": len(engine.subscriptions.records.entries),
        "tailrace_webhooks_total": metrics.webhooks,
    }


def add_log(families: Iterable[Metric], size: int | None) -> None:
    """Add the size of the log, which is read later than the other sizes."""
    for family in families:
        if family.name == _STORED and size is not None:
            family.add_sample(_STORED, {"kind": "log"}, size)


def _histogram(name: str, histogram: Histogram) -> HistogramMetricFamily:
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    # Prometheus expects cumulative counts.
    counts = accumulate(histogram.counts)
    buckets = list(zip(bounds, counts, strict=True))
    return HistogramMetricFamily(name, HELP[name], buckets=buckets, sum_value=histogram.sum)
