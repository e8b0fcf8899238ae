"""Counters of a server, shown at `/-/metrics`."""

from tailrace.server.observability.metrics.metrics import Metrics

__all__ = ["Metrics"]
