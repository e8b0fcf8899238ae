"""Reads that wait: long-poll and SSE (§5.7, §5.8)."""

from tailrace.server.live.live import Live

__all__ = ["Live"]
