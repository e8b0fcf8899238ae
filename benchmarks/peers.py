"""The servers under measurement: how each is started, found and stopped."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import node
from benchmarks.model import (
    OURS,
    OURS_MEMORY,
    REFERENCE_FILE,
    REFERENCE_MEMORY,
    BenchmarkError,
)

START_SECONDS = 120.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.002


def command(peer: str, data_dir: Path, options: Sequence[str] = ()) -> list[str]:
    """The command line that starts a peer; the options are for ours alone."""
    if peer == REFERENCE_FILE:
        return node.reference_command(data_dir)
    if peer == REFERENCE_MEMORY:
        return node.reference_command(None)
    ours = [sys.executable, "-m", "tailrace", "serve", "--host", "127.0.0.1", "--port", "0"]
    ours += ["--log-format", "json", *options]
    if peer == OURS:
        return [*ours, "--data-dir", str(data_dir)]
    if peer == OURS_MEMORY:
        return [*ours, "--engine", "memory"]
    raise BenchmarkError(f"there is no peer named {peer}")


@contextlib.contextmanager
def running(peer: str, directory: Path, options: Sequence[str] = ()) -> Iterator[RunningServer]:
    """A new server with an empty data directory; both are removed afterwards."""
    parent = Path(tempfile.mkdtemp(prefix="tailrace-bench-", dir=directory))
    try:
        server = RunningServer(peer, parent, options)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(parent, ignore_errors=True)


class RunningServer:
    """One server process, its data directory and the log it writes."""

    def __init__(self, peer: str, directory: Path, options: Sequence[str] = ()) -> None:
        self._log = directory / "log"
        self._data_dir = directory / "data"
        self._data_dir.mkdir()
        self._command = command(peer, self._data_dir, options)
        self._start()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def restart(self, *, kill: bool = False) -> None:
        """Stop the server and start it again on the same data directory."""
        self.stop(kill=kill)
        self._start()

    def stop(self, *, kill: bool = False) -> None:
        """End the process by SIGTERM, or by SIGKILL with ``kill``."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        before = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            url = urlsplit(self._wait_for_url(before + START_SECONDS))
        except BaseException:
            self.stop(kill=True)
            raise
        self.start_seconds = time.perf_counter() - before
        self.host = url.hostname or "127.0.0.1"
        self.port = url.port or 80

    def _wait_for_url(self, deadline: float) -> str:
        """Read the log until the line with the address."""
        with self._log.open("rb") as log:
            line = b""
            while time.perf_counter() < deadline:
                line += log.readline()
                if not line.endswith(b"\n"):
                    if self._process.poll() is not None:
                        break
                    time.sleep(POLL_SECONDS)
                    continue
                url = _listening_url(line)
                if url is not None:
                    return url
                line = b""
        text = self._log.read_text(errors="replace")[-2000:]
        raise BenchmarkError(f"the server did not start: {self._command[1:4]}\n{text}")


def _listening_url(line: bytes) -> str | None:
    """The address in a log line, if it has one."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if isinstance(event, dict) and event.get("event") == "listening":
        return str(event["url"])
    return None
