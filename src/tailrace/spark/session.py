"""
A Spark session for the jobs.

Rule 1: workers run the Python of the driver. With another one they fail with an EOFError.

Rule 2: the number of partitions of a micro-batch is the same at every attempt. Exactly-once writes
name their producers after partitions, so Spark must not coalesce them.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tailrace.exceptions import TailraceError
from tailrace.spark.java import find_java
from tailrace.spark.wrapper_scripts import cache_directory, install_script

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
_WORKER_PYTHON: Final = """\
#!/bin/sh
# Spark puts pyspark.zip first on the path of its workers. The zip has no bytecode, so every worker
# would compile pyspark again. Without it, workers import the installed package.
PYTHONPATH=${{PYTHONPATH#*/pyspark.zip:}}
export PYTHONPATH
exec {python} "$@"
"""
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
    is_local = master.startswith("local")
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = _worker_python() if is_local else sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(_retrying(master))
    for name, value in DEFAULTS.items():
        if is_local or name not in _LOCAL_ONLY:
            builder = builder.config(name, value)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _worker_python() -> str:
    """The driver's Python, by a script that makes workers start four times as fast."""
    name = hashlib.sha256(sys.executable.encode()).hexdigest()[:12]
    script = cache_directory(os.environ) / "python" / name
    try:
        install_script(script, _WORKER_PYTHON.format(python=shlex.quote(sys.executable)))
    except OSError:
        # The cache directory is read-only.
        return sys.executable
    return str(script)


def _retrying(master: str) -> str:
    """Spark does not retry tasks on `local[n]`; `local[n,attempts]` does."""
    if master == "local":
        return "local[1,4]"
    if master.startswith("local[") and master.endswith("]") and "," not in master:
        return f"{master[:-1]},4]"
    return master
