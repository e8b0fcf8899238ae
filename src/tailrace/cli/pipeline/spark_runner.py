"""
Spark for one command: it starts without output, and always ends with the command.

Rule 1: standard error of the JVM and its workers goes to a temporary file, unless `--verbose` or
TAILRACE_DEBUG is set. Errors arrive as exceptions.

Rule 2: after an interrupt no call to the JVM is made: the interrupted thread may read the response
to the call before. The JVM is terminated first, and waited for.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final

from tailrace.cli.connection import Location
from tailrace.cli.failures import Failure
from tailrace.cli.pipeline.spark_errors import job_failure
from tailrace.cli.signals import exit_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["VERBOSE_VARIABLE", "SparkRunner", "check_spark"]

VERBOSE_VARIABLE: Final = "TAILRACE_DEBUG"
_END_S: Final = 20.0
_POLL_S: Final = 0.05
_QUIET: Final = {"spark.log.level": "ERROR"}


@dataclass(frozen=True, slots=True)
class SparkRunner:
    """Runs Spark for one job."""

    master: str
    conf: dict[str, str]
    verbose: bool

    @contextmanager
    def running(self, job: str, location: Location) -> Iterator["SparkSession"]:
        """
        A session for a job.

        Raises:
            Failure: The job, or Spark, failed; `location` is named in the message.
        """
        check_spark()
        if not self.verbose:
            # py4j logs an interrupt with its stack trace.
            logging.root.addHandler(logging.NullHandler())
        with exit_on_signals(), self._log() as log, _ending_jvm(log):
            try:
                spark = self._session(job, log)
                yield spark
                spark.stop()
            except Failure:
                raise
            except Exception as error:
                if (stop := _stop_before(error)) is not None:
                    raise stop from None
                if self.verbose:
                    sys.excepthook(type(error), error, error.__traceback__)
                raise job_failure(error, location) from error

    def _log(self) -> AbstractContextManager[IO[bytes] | None]:
        return nullcontext() if self.verbose else tempfile.TemporaryFile(prefix="tailrace-spark-")

    def _session(self, job: str, log: IO[bytes] | None) -> "SparkSession":
        from tailrace.spark.session import new_session

        interrupt = signal.getsignal(signal.SIGINT)
        try:
            with _standard_error_to(log):
                spark = new_session(f"tailrace {job}", self.master, {**_QUIET, **self.conf})
        except Exception as error:
            raise _not_started(error, log) from error
        # Replaces the handler of Spark, which calls the JVM, possibly within another call. A SIGINT
        # that the parent ignores stays ignored.
        handler = signal.SIG_IGN if interrupt is signal.SIG_IGN else partial(_interrupt, log)
        signal.signal(signal.SIGINT, handler)
        return spark


def _interrupt(log: IO[bytes] | None, number: int, frame: FrameType | None) -> None:
    """Rule 2: calls to the JVM fail from now on, and their errors are not shown."""
    if log is not None:
        os.dup2(log.fileno(), 2)
    if (process := _jvm()) is not None:
        process.terminate()
    raise KeyboardInterrupt


def _stop_before(error: BaseException) -> BaseException | None:
    """The interrupt or exit during whose clean-up an error was raised, if any."""
    seen = error.__context__
    while seen is not None and not isinstance(seen, KeyboardInterrupt | SystemExit):
        seen = seen.__context__
    return seen


def check_spark() -> None:
    """Raise ModuleNotFoundError if pyspark is not installed, before anything else fails."""
    import pyspark  # noqa: F401 - whether it can be imported is the question


def _not_started(error: Exception, log: IO[bytes] | None) -> Failure:
    """The failure for a JVM that ended while it started: the first error in its log."""
    if type(error).__module__.startswith("tailrace."):
        # Java or Spark is not installed.
        return Failure(str(error))
    lines: list[str] = []
    if log is not None:
        log.seek(0)
        lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    reason = next((line for line in lines if "Exception" in line or "Error" in line), str(error))
    return Failure(f"Spark did not start: {reason}", hint="to see its output, use --verbose")


@contextmanager
def _standard_error_to(log: IO[bytes] | None) -> Iterator[None]:
    """Redirect file 2, for this process and for good for processes that start meanwhile."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _ending_jvm(log: IO[bytes] | None) -> Iterator[None]:
    """End the JVM that was started in the block."""
    handler = signal.getsignal(signal.SIGINT)
    before = _children()
    kept = os.dup(2)
    try:
        yield
    finally:
        with _standard_error_to(log):
            if (process := _jvm()) is None:
                # Interrupted during the start: pyspark has no reference to the JVM.
                for child in _children() - before:
                    _end(child)
            else:
                # `poll` first: the id of a process that was waited for may be another's by now.
                if process.poll() is None:
                    _end(process.pid)
                _reset_pyspark()
        signal.signal(signal.SIGINT, handler)
        os.dup2(kept, 2)
        os.close(kept)


def _jvm() -> "subprocess.Popen[bytes] | None":
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def _reset_pyspark() -> None:
    """Let pyspark forget the JVM, which has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _children() -> set[int]:
    """The child processes."""
    try:
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False
        )
    except OSError:
        return set()
    pairs = [line.split() for line in listed.stdout.splitlines()]
    return {int(child) for child, parent in pairs if int(parent) == os.getpid()}


def _end(process: int) -> None:
    """Terminate a child, and kill it if it does not end."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + _END_S
        while os.waitpid(process, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
            time.sleep(_POLL_S)
