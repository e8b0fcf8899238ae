"""Starts streaming queries."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["POLL_INTERVAL_S", "start_query"]

POLL_INTERVAL_S: Final = 0.5
"""How often a job checks whether its query has ended."""


def start_query(
    writer: "DataStreamWriter", checkpoint: str, every_s: float | None
) -> "StreamingQuery":
    """Start a query that runs a batch every so often; with None it ends with the current data."""
    writer = writer.option("checkpointLocation", checkpoint)
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{max(1, round(every_s * 1000))} milliseconds").start()
