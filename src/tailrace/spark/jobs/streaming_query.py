"""
Runs streaming queries.

Spark starts a Python process for each streaming read and gives it ten seconds to connect. This is a
constant in `PythonWorkerFactory.createSimpleWorker`, and too short on a busy machine. The query has
not read anything then, so it is started again.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["POLL_INTERVAL_S", "run_query"]

POLL_INTERVAL_S: Final = 0.5
"""How often a job checks whether its query has ended."""
STARTS_MAX: Final = 5
_START_FAILURE: Final = "Python worker failed to connect back"

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


def run_query(
    writer: "DataStreamWriter",
    checkpoint: str,
    every_s: float | None,
    follow: "Callable[[StreamingQuery], T]",
) -> T:
    """
    Start a query, and stop it when `follow` returns.

    Args:
        every_s: Run a batch this often; None: end with the data that exists at the start.
    """
    writer = writer.option("checkpointLocation", checkpoint)
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{max(1, round(every_s * 1000))} milliseconds")
    for start in range(STARTS_MAX):
        query = writer.start()
        try:
            return follow(query)
        except Exception as error:
            if _START_FAILURE not in str(error) or start == STARTS_MAX - 1:
                raise
            _log.warning("Spark's Python worker did not start in time; starting the query again")
        finally:
            query.stop()
    raise AssertionError
