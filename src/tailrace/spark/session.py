"""
A Spark session for the jobs.

Rule 1: workers run the Python of the driver. With another one they fail with an EOFError.

Rule 2: the number of partitions of a micro-batch is the same at every attempt. Exactly-once writes
name their producers after partitions, so Spark must not coalesce them.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tailrace.exceptions import TailraceError
from tailrace.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEFAULTS", "SparkMissing", "new_session"]

DEFAULTS: Final = {
    # Rule 2.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    # Each update contains the read positions of all streams.
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The default of 15 s is too short on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
    # Works without a network and without a name service.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_LOCAL_ONLY: Final = ("spark.driver.host", "spark.driver.bindAddress")


class SparkMissing(TailraceError):
    """pyspark is not installed."""

    message = "Spark is not installed: pip install 'tailrace[spark]'"


def new_session(
    app: str, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """
    Start Spark, or return the running session.

    `local` masters get four attempts per task, as clusters have: `local[2]` is `local[2,4]`.

    Raises:
        JavaMissing, SparkMissing: A requirement of Spark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissing from None
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_local = master.startswith("local")
    builder = SparkSession.builder.appName(app).master(_retrying(master))
    for name, value in DEFAULTS.items():
        if is_local or name not in _LOCAL_ONLY:
            builder = builder.config(name, value)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _retrying(master: str) -> str:
    """Spark does not retry tasks on `local[n]`; `local[n,attempts]` does."""
    if master == "local":
        return "local[1,4]"
    if master.startswith("local[") and master.endswith("]") and "," not in master:
        return f"{master[:-1]},4]"
    return master
