"""Processes of Spark beside the tests': masters, workers, Connect servers, and their clients."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pyspark

from tailrace.spark.java import find_java
from tests.spark.faults.processes import LIFE_S, descendants
from tests.support.server import REPO_ROOT
from tests.support.streams import wait_until

__all__ = ["BIN", "Launched", "environment", "free_port"]

BIN = Path(pyspark.__file__).parent / "bin"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def environment(home: Path) -> dict[str, str]:
    """The environment of a Spark process; it writes only to `home`."""
    # A session in this process may have left settings for its own Java.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    return {
        **kept,
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(BIN.parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(home / "local"),
        "SPARK_WORKER_DIR": str(home / "work"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
    }


class Launched:
    """A process with its children and its log; all end together."""

    def __init__(
        self,
        command: list[str],
        home: Path,
        name: str,
        env: Mapping[str, str] | None = None,
        cwd: Path = REPO_ROOT,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = home / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**environment(home), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, words: str) -> None:
        """Wait for a text in the log."""
        said = f"{self.name} says {words!r}"
        wait_until(said, lambda: words in self.text or not self.running, LIFE_S)
        assert words in self.text, self.text[-8000:]

    def finish(self) -> str:
        """Wait for a successful end; returns the log."""
        self._process.wait(LIFE_S)
        assert self._process.returncode == 0, self.text[-8000:]
        return self.text

    def kill(self) -> None:
        """Kill only this process."""
        if self.running:
            self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Kill the process and its children."""
        if self.running:
            for pid in [self.pid, *descendants(self.pid)]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self._process.wait()

    def __enter__(self) -> "Launched":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"{self.name}:\n{self.text[-4000:]}")
        self.end()
