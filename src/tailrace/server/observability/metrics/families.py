"""
The metric families of the page, made from the counters of `Metrics` and of the engine.

`HELP` has every name and its meaning; docs/guides/monitoring.md has the same table, and a test
compares the two.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from tailrace import __version__
from tailrace.engine import errors as engine_errors
from tailrace.engine.meters import OTHER, Histogram, Meters
from tailrace.protocol import errors as protocol_errors
from tailrace.protocol.errors import Refusal
from tailrace.server import errors as server_errors
from tailrace.server.guard.access import errors as access_errors
from tailrace.server.guard.limits import errors as limits_errors

if TYPE_CHECKING:
    from tailrace.server.observability.metrics.metrics import Metrics

__all__ = ["HELP", "Families", "add_log"]

_ERRORS: Final = (protocol_errors, engine_errors, server_errors, access_errors, limits_errors)
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
}


class Families(Collector):
    """Makes the families of a scrape."""

    def __init__(self, metrics: "Metrics") -> None:
        self._metrics = metrics
        self._codes = sorted(_codes())

    def collect(self) -> Iterator[Metric]:
        yield from self._answers()
        yield from self._commits(self._metrics.engine.commit.meters)
        yield from self._readers()
        yield from self._storage()
        yield from self._buckets(self._metrics.engine.commit.meters)

    def _answers(self) -> Iterator[Metric]:
        metrics = self._metrics
        build = InfoMetricFamily("tailrace_build", HELP["tailrace_build_info"])
        build.add_metric((), {"version": __version__, "engine": metrics.settings.engine})
        yield build
        requests = _counter("tailrace_requests_total", ("operation", "status"))
        for (operation, status), count in sorted(metrics.requests.items()):
            requests.add_metric((operation, str(status)), count)
        yield requests
        # Every code, from zero on: Prometheus does not count the first increase otherwise.
        refusals = {**dict.fromkeys(self._codes, 0), **metrics.refusals}
        yield _counter("tailrace_refused_total", ("code",), refusals)
        yield _histogram("tailrace_append_seconds", metrics.append_s)
        read = {**metrics.read_bytes, "sse": metrics.live.sent_bytes}
        yield _counter("tailrace_read_bytes_total", ("operation",), read)

    def _commits(self, meters: Meters) -> Iterator[Metric]:
        yield _counter("tailrace_appended_bytes_total", (), {"": meters.appended_bytes})
        yield _counter("tailrace_appended_messages_total", (), {"": meters.appended_messages})
        yield _counter("tailrace_commits_total", (), {"": meters.commits})
        yield _histogram("tailrace_commit_batch_records", meters.commit_records)
        yield _histogram("tailrace_commit_sync_seconds", meters.sync_s)
        yield _counter("tailrace_reclaimed_bytes_total", (), {"": meters.reclaimed_bytes})

    def _readers(self) -> Iterator[Metric]:
        metrics = self._metrics
        polls, sessions = metrics.live.count()
        readers = {"long-poll": polls, "sse": sessions}
        yield _gauge("tailrace_live_readers", ("kind",), readers)
        yield _gauge("tailrace_connections", (), {"": metrics.connections()})
        hot = metrics.engine.stream_cache
        yield _gauge("tailrace_streams_hot", (), {"": len(hot)})
        yield _counter("tailrace_stream_cache_hits_total", (), {"": hot.hits})
        yield _counter("tailrace_stream_cache_misses_total", (), {"": hot.misses})

    def _storage(self) -> Iterator[Metric]:
        store = self._metrics.engine.store
        yield _gauge(_STORED, ("kind",), store.sizes())
        free = store.free_bytes()
        if free is not None:
            yield _gauge("tailrace_disk_free_bytes", (), {"": max(0, free)})
        cache = store.cache_lookups()
        if cache is not None:
            yield _counter("tailrace_block_cache_hits_total", (), {"": cache[0]})
            yield _counter("tailrace_block_cache_misses_total", (), {"": cache[1]})

    def _buckets(self, meters: Meters) -> Iterator[Metric]:
        """Buckets that are counted by name, and the total of all others."""
        yield _gauge("tailrace_buckets", (), {"": meters.buckets})
        streams: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for key in meters.bucket_appends:
            state = self._metrics.engine.buckets.entry(key).durable
            if state is not None:
                streams[key.decode()] = state.streams
                sizes[key.decode()] = state.bytes
        streams[OTHER] = meters.bucketed_streams - sum(streams.values())
        sizes[OTHER] = meters.bucketed_bytes - sum(sizes.values())
        appends = {key.decode(): count for key, count in meters.bucket_appends.items()}
        appends[OTHER] = meters.other_appends
        yield _gauge("tailrace_bucket_streams", ("bucket",), streams)
        yield _gauge("tailrace_bucket_bytes", ("bucket",), sizes)
        yield _counter("tailrace_bucket_appends_total", ("bucket",), appends)


def add_log(families: Iterable[Metric], size: int | None) -> None:
    """Add the size of the log, which is read later than the other sizes."""
    for family in families:
        if family.name == _STORED and size is not None:
            family.add_sample(_STORED, {"kind": "log"}, size)


def _codes() -> set[str]:
    """The codes of all refusals."""
    values = [value for module in _ERRORS for value in vars(module).values()]
    return {
        value.code
        for value in values
        if isinstance(value, type) and issubclass(value, Refusal) and "code" in vars(value)
    } - {Refusal.code}


def _counter(
    name: str, labels: tuple[str, ...], values: Mapping[str, float] | None = None
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, HELP[name], labels=labels)
    for label, value in (values or {}).items():
        family.add_metric((label,) if labels else (), value)
    return family


def _gauge(name: str, labels: tuple[str, ...], values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, HELP[name], labels=labels)
    for label, value in values.items():
        family.add_metric((label,) if labels else (), value)
    return family


def _histogram(name: str, histogram: Histogram) -> HistogramMetricFamily:
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    # Prometheus expects cumulative counts.
    counts = accumulate(histogram.counts)
    buckets = list(zip(bounds, counts, strict=True))
    return HistogramMetricFamily(name, HELP[name], buckets=buckets, sum_value=histogram.sum)
