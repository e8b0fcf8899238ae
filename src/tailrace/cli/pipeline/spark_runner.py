"""
Spark for one command: started quietly, stopped whatever happens.

Rule 1: what the JVM and its workers write to standard error goes to a file that nobody sees, unless
`--verbose` or TAILRACE_DEBUG asks for it. What went wrong comes as an exception.

Rule 2: after an interrupt nothing more is learnt from the JVM: the next answer that the interrupted
thread reads may be that to the call before. The JVM is told to end first, and is waited for.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final

import click

from tailrace.cli.connection import Command
from tailrace.cli.failures import Failure
from tailrace.cli.pipeline.spark_errors import failure_of
from tailrace.cli.signals import ending_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEBUG_VARIABLE", "Engine", "engine_options"]

DEBUG_VARIABLE: Final = "TAILRACE_DEBUG"
_END_S: Final = 20.0
_LOOK_EVERY_S: Final = 0.05
_QUIET: Final = {"spark.log.level": "ERROR"}


@dataclass(frozen=True, slots=True)
class Engine:
    """Which Spark, and how much it may say."""

    master: str
    conf: dict[str, str]
    verbose: bool

    @contextmanager
    def running(self, job: str, subject: str) -> Iterator["SparkSession"]:
        """
        A session for a job; errors come out as what to tell.

        Raises:
            Failure: What the job, or Spark, could not do; `subject` names what it was about.
        """
        check_libraries()
        with ending_on_signals(), self._log() as log, _jvm_of(log), _hushed(self.verbose):
            try:
                spark = self._session(job, log)
                yield spark
                spark.stop()
            except Failure:
                raise
            except Exception as error:
                if (stop := _stop_behind(error)) is not None:
                    raise stop from None
                if self.verbose:
                    sys.excepthook(type(error), error, error.__traceback__)
                raise failure_of(error, subject) from error

    @contextmanager
    def _log(self) -> Iterator[IO[bytes] | None]:
        if self.verbose:
            yield None
            return
        with tempfile.TemporaryFile(prefix="tailrace-spark-") as log:
            yield log

    def _session(self, job: str, log: IO[bytes] | None) -> "SparkSession":
        from tailrace.spark.session import new_session

        try:
            with _standard_error_to(log):
                spark = new_session(f"tailrace {job}", self.master, {**_QUIET, **self.conf})
        except Exception as error:
            raise _not_started(error, log) from error
        # Spark's own handler asks the JVM to cancel its jobs, in the midst of another question.
        signal.signal(signal.SIGINT, partial(_interrupt, log))
        return spark


def _interrupt(log: IO[bytes] | None, number: int, frame: FrameType | None) -> None:
    """Rule 2: whoever asks the JVM for more while it cleans up fails at once; nobody is told."""
    if log is not None:
        os.dup2(log.fileno(), 2)
    if (process := _jvm()) is not None:
        process.terminate()
    raise KeyboardInterrupt


def _stop_behind(error: BaseException) -> BaseException | None:
    """What asked us to stop, where cleaning up after it is what failed."""
    seen = error.__context__
    while seen is not None and not isinstance(seen, KeyboardInterrupt | SystemExit):
        seen = seen.__context__
    return seen


def check_libraries() -> None:
    """
    Make sure that pyspark is installed.

    Raises:
        Failure: It is not.
    """
    try:
        import pyspark  # noqa: F401 - whether it can be imported is the question
    except ModuleNotFoundError as error:
        raise Failure("this needs Spark: pip install 'tailrace[spark]'") from error


def _not_started(error: Exception, log: IO[bytes] | None) -> Failure:
    """What the JVM said before it ended, where it is all that there is."""
    if type(error).__name__ in ("JavaMissing", "SparkMissing"):
        return failure_of(error, "")
    said: list[str] = []
    if log is not None:
        log.seek(0)
        said = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    told = next((line for line in said if "Exception" in line or "Error" in line), str(error))
    return Failure(f"Spark did not start: {told}", hint="see all that it says: --verbose")


@contextmanager
def _standard_error_to(log: IO[bytes] | None) -> Iterator[None]:
    """Processes that are started meanwhile keep it for good."""
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
def _hushed(verbose: bool) -> Iterator[None]:
    """py4j logs an interrupt with its stack; where nobody set up logging, that goes nowhere."""
    nowhere = logging.NullHandler()
    if not verbose:
        logging.root.addHandler(nowhere)
    try:
        yield
    finally:
        logging.root.removeHandler(nowhere)


@contextmanager
def _jvm_of(log: IO[bytes] | None) -> Iterator[None]:
    """Whatever JVM was started in the block has ended after it."""
    handler = signal.getsignal(signal.SIGINT)
    before = _children()
    kept = os.dup(2)
    try:
        yield
    finally:
        with _standard_error_to(log):
            if not _end_gateway():
                # Interrupted while it started: pyspark has forgotten it, and it would stay.
                for child in _children() - before:
                    _end(child)
        signal.signal(signal.SIGINT, handler)
        os.dup2(kept, 2)
        os.close(kept)


def _jvm() -> "subprocess.Popen[bytes] | None":
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def _end_gateway() -> bool:
    """Whether there was a JVM to end: by a signal, after which it cleans up. It is forgotten."""
    process = _jvm()
    if process is None:
        return False
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_S)
    gateway: Any = SparkContext._gateway
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    return True


def _children() -> set[int]:
    """The processes that this one has started."""
    try:
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False
        )
    except OSError:
        return set()
    pairs = [line.split() for line in listed.stdout.splitlines()]
    return {int(child) for child, parent in pairs if int(parent) == os.getpid()}


def _end(process: int) -> None:
    """Ask a child to end, and make it."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + _END_S
        while os.waitpid(process, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
            time.sleep(_LOOK_EVERY_S)


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for value in values:
        name, mark, text = value.partition("=")
        if not mark or not name.strip():
            raise click.BadParameter(f"{value!r} is not of the form name=value", ctx, param)
        found[name.strip()] = text
    return found


def engine_options(command: Command) -> Command:
    """Options about Spark; the command gets `engine`."""

    @click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs: this machine, or a cluster.",
    )
    @click.option(
        "--conf",
        multiple=True,
        callback=_pairs,
        metavar="NAME=VALUE",
        help="A setting of Spark; may be given several times.",
    )
    @click.option(
        "--verbose",
        is_flag=True,
        envvar=DEBUG_VARIABLE,
        show_envvar=True,
        help="Show all that Spark says, and whole stack traces.",
    )
    @wraps(command)
    def run(*args: Any, master: str, conf: dict[str, str], verbose: bool, **kwargs: Any) -> None:
        command(*args, engine=Engine(master, conf, verbose), **kwargs)

    return run
