"""Counters of a server, shown at `/-/metrics`."""

from tailrace.server.observability.metrics.metrics import Metrics, TracedMetrics, open_metrics

__all__ = ["Metrics", "TracedMetrics", "open_metrics"]
