"""
A standalone cluster: a master and two workers, at 127.0.0.1, .2 and .3.

Two hosts, as far as Spark can tell. Only so does it start a second attempt beside a slow one
(speculation), which it never does on the host of the first.
"""

import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tests.spark.cluster.launching import BIN, Launched, free_port
from tests.spark.faults.processes import command, descendants
from tests.support.streams import wait_until

__all__ = ["Cluster"]

HOSTS = ("127.0.0.2", "127.0.0.3")


class Cluster:
    """The processes of a cluster."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = free_port()
        self._stack = ExitStack()
        self._starts = 0
        self.workers: dict[str, Launched] = {}

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> "Cluster":
        with self._stack:
            words = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
            self._daemon("master", "master.Master", *words).wait_for("I have been elected leader")
            for host in HOSTS:
                self.start_worker(host)
            for host in HOSTS:
                self.workers[host].wait_for("Successfully registered")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def start_worker(self, host: str) -> Launched:
        """Start a worker; it may replace a killed one."""
        words = ("--host", host, "--webui-port", "0", "--cores", "1", "--memory", "600m")
        self.workers[host] = self._daemon(host, "worker.Worker", *words, self.master)
        return self.workers[host]

    def _daemon(self, name: str, kind: str, *words: str) -> Launched:
        self._starts += 1
        home = self._home / f"{name}-{self._starts}"
        start = [str(BIN / "spark-class"), f"org.apache.spark.deploy.{kind}", *words]
        return self._stack.enter_context(Launched(start, home, name))

    def executors(self, host: str) -> list[int]:
        """The processes that run tasks on a host."""
        pids = descendants(self.workers[host].pid)
        return [pid for pid in pids if "CoarseGrainedExecutorBackend" in command(pid)]

    def kill_executor(self, host: str) -> None:
        """SIGKILL: its tasks are lost; its worker starts another."""
        wait_until("an executor", lambda: bool(self.executors(host)), 60)
        for pid in self.executors(host):
            os.kill(pid, signal.SIGKILL)

    def kill_worker(self, host: str) -> None:
        """SIGKILL to the worker, and to what it started: as if the host were gone."""
        self.workers[host].end()

    def run(self, home: Path, job: str, **values: object) -> Launched:
        """Start a driver, `jobs`, on this cluster."""
        words = [sys.executable, "-m", "tests.spark.cluster.jobs", self.master, job]
        self._starts += 1
        return Launched([*words, json.dumps(values)], home, f"driver-{self._starts}")
