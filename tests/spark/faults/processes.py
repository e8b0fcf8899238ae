"""Finds the processes of Spark below a driver, and kills them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.spark.faults.pipeline import Pipeline
from tests.support.server import REPO_ROOT
from tests.support.streams import wait_until

__all__ = ["Driver", "descendants", "kill_workers", "python_workers"]

_DAEMON = "pyspark.daemon pyspark.worker"
"""Those of tasks; the driver plans in others."""
LIFE_S = 180.0
"""A guard against a hang, on a machine that does other things too."""


def _parents() -> dict[int, int]:
    """Every process and its parent."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # A name may have spaces and brackets: the fields begin after its last bracket.
        found[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    return found


def descendants(root: int) -> list[int]:
    """The descendants of a process."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found, left = [], [root]
    while left:
        fresh = children.get(left.pop(), [])
        found += fresh
        left += fresh
    return found


def command(pid: int) -> str:
    """The command line of a process; empty after its end."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _is_spark(pid: int) -> bool:
    return "pyspark" in command(pid)


def python_workers(root: int) -> list[int]:
    """The Python processes that tasks run in: what the daemon of a driver or executor forks."""
    parents = _parents()
    return [
        pid
        for pid in descendants(root)
        if _DAEMON in command(pid) and _DAEMON in command(parents.get(pid, 0))
    ]


def kill_workers(root: int) -> int:
    """Kill the processes; returns their number."""
    workers = python_workers(root)
    for pid in workers:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(workers)


class Driver:
    """`driver` as a process: killed together with its Java, or left to end by itself."""

    def __init__(self, kind: str, pipeline: Pipeline, home: Path, *more: str) -> None:
        self.log = home / f"driver-{id(self)}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.faults.driver", kind, pipeline.json(), *more],
                cwd=REPO_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own: Python and Java die together.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill_when(self, what: Callable[[], bool]) -> bool:
        """Kill the driver when a condition holds; false if it ended before."""
        wait_until("the moment to kill", lambda: what() or not self.running, LIFE_S)
        was_running = self.running
        self.kill()
        assert was_running or self._process.returncode == 0, self.log.read_text()[-8000:]
        return was_running

    def kill(self) -> None:
        """SIGKILL to Python and Java. Workers notice that by themselves, as after a real crash."""
        started = descendants(self.pid)
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        wait_until("no worker is left", lambda: not any(map(_is_spark, started)), LIFE_S)

    def __enter__(self) -> "Driver":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.log.read_text()[-8000:])
        self.kill()
