"""
Real server processes for tests: started, killed and restarted as users do.

Nothing here shares memory with the server, so a test that kills it proves what is on disk.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

REPO_ROOT = Path(__file__).resolve().parents[2]
# Not assertions about speed: a busy machine may take long, a server that hangs takes for ever.
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
# A server whose coverage is measured writes it when it ends by itself.
COVERAGE_GRACE_S = 5.0


class ServerError(AssertionError):
    """The server did not start, run or stop as the test needs; the text ends with its log."""


class BaseServerProcess(ABC):
    """
    One server process that can be started, killed and restarted on the same data and port.

    `args` are options as on the command line of `tailrace serve`. A test that runs on every kind
    of server gives the same options to each.
    """

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """Ends the process with an orderly exit of the interpreter."""

    def __init__(self, data_dir: Path | str, *args: str, env: Mapping[str, str] | None = None):
        self.data_dir = Path(data_dir)
        self.args = args
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._closed_output = False
        self._port: int | None = None

    # What differs between the kinds of servers.

    @abstractmethod
    def _command(self, port: int) -> list[str]:
        """The command that serves on `port`; 0 means any free port."""

    @abstractmethod
    def _port_in(self, line: str) -> int | None:
        """The port, if this line of the log reports that the server listens."""

    def _extra_env(self) -> Mapping[str, str]:
        return {}

    @property
    def base_path(self) -> str:
        """The path under which the server is mounted."""
        return ""

    # Common to all kinds.

    @property
    def port(self) -> int:
        """The port of the first start; later starts use the same."""
        if self._port is None:
            raise ServerError("the server was never started")
        return self._port

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}{self.base_path}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> list[str]:
        """Every line that the server printed, over all its starts."""
        with self._changed:
            return list(self._lines)

    def events(self) -> list[dict[str, Any]]:
        """The lines of the log that are JSON objects."""
        return [event for line in self.log if (event := _json_object(line)) is not None]

    def start(self) -> Self:
        """Start the process and wait until it listens."""
        if self.running:
            raise ServerError("the server is already running")
        with self._changed:
            first_line = len(self._lines)
            self._closed_output = False
        environment = {**os.environ, **self._extra_env(), **self._env}
        self._process = subprocess.Popen(
            self._command(self._port or 0),
            cwd=REPO_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        try:
            self._port = self._wait_until_listening(first_line)
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """End the process with SIGKILL: it can neither flush nor close connections."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
        self._finish(self._process)

    def terminate(self) -> int:
        """End the process with SIGTERM; returns its exit code."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(
                self._with_log(f"still running {STOP_TIMEOUT_S} s after SIGTERM")
            ) from None
        self._finish(process)
        return process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, and do not wait for its effect."""
        self._running().send_signal(number)

    def wait_for_end(self) -> int:
        """Wait until the process ends by itself; returns its exit code."""
        process = self._process
        assert process is not None
        process.wait(STOP_TIMEOUT_S)
        self._finish(process)
        return process.returncode

    def stop(self) -> None:
        """End a process that is no longer needed; it can save its coverage first."""
        if coverage_is_measured() and self._process is not None and self.running:
            self._process.send_signal(self.stop_signal)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(COVERAGE_GRACE_S)
        self.kill()

    def restart(self) -> Self:
        """Kill the process if it is running, then start it on the same data and port."""
        self.kill()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self._with_log("the server's log when the test failed"))
        self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise ServerError(self._with_log("the server is not running"))
        return self._process

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(STOP_TIMEOUT_S)
        if self._reader is not None:
            self._reader.join(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
        self._process = None

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Read lines for as long as the process lives: a full pipe would block it."""
        assert process.stdout is not None
        for raw in process.stdout:
            with self._changed:
                self._lines.append(raw.decode("utf-8", "replace").rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._closed_output = True
            self._changed.notify_all()

    def _wait_until_listening(self, first_line: int) -> int:
        def port() -> int | None:
            ports = (self._port_in(line) for line in self._lines[first_line:])
            return next((number for number in ports if number is not None), None)

        with self._changed:
            self._changed.wait_for(
                lambda: port() is not None or self._closed_output, START_TIMEOUT_S
            )
            number, ended = port(), self._closed_output
        if number is None:
            reason = "ended before it listened" if ended else "did not listen in time"
            raise ServerError(self._with_log(reason))
        return number

    def _with_log(self, text: str) -> str:
        tail = "\n".join(f"  | {line}" for line in self.log[-60:]) or "  | (it printed nothing)"
        return f"{type(self).__name__}: {text}\n{tail}"


class ServerProcess(BaseServerProcess):
    """`tailrace serve`, the stand-alone server."""

    def _command(self, port: int) -> list[str]:
        return [
            *(sys.executable, "-m", "tailrace", "serve"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--log-format", "json", "--data-dir", str(self.data_dir)),
            *self.args,
        ]

    def _port_in(self, line: str) -> int | None:
        event = _json_object(line)
        if event is None or event.get("event") != "listening":
            return None
        match = re.search(r":(\d+)/?$", str(event.get("url", "")))
        return int(match[1]) if match else None


class AsgiServerProcess(BaseServerProcess):
    """The ASGI app, mounted under a path of another app and run by uvicorn."""

    # After its shutdown uvicorn raises the signal again, which for SIGTERM ends the interpreter.
    stop_signal = signal.SIGINT
    app = "tests.support.asgi_app:app"

    def _command(self, port: int) -> list[str]:
        return [
            *(sys.executable, "-m", "uvicorn", self.app),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--no-access-log", "--no-use-colors"),
            # The default of 5 s would close connections of tests on a busy machine.
            *("--timeout-keep-alive", "120"),
        ]

    def _port_in(self, line: str) -> int | None:
        match = re.search(r"Uvicorn running on http://127\.0\.0\.1:(\d+)", line)
        return int(match[1]) if match else None

    def _extra_env(self) -> Mapping[str, str]:
        return {"TAILRACE_DATA_DIR": str(self.data_dir), **settings_from_options(self.args)}

    @property
    def base_path(self) -> str:
        return "/mounted"


class RootAsgiServerProcess(AsgiServerProcess):
    """The ASGI app alone, at the root: some clients drop the path of a server's URL."""

    app = "tests.support.asgi_app:streams"

    @property
    def base_path(self) -> str:
        return ""


def settings_from_options(args: tuple[str, ...]) -> dict[str, str]:
    """The environment variables that stand for these `--name value` options."""
    if len(args) % 2:
        raise ValueError(f"expected pairs of --name and value: {args}")
    return {
        "TAILRACE_" + name.removeprefix("--").replace("-", "_").upper(): value
        for name, value in zip(args[::2], args[1::2], strict=True)
    }


def coverage_is_measured() -> bool:
    """Whether processes that are started report their coverage."""
    return any(name in os.environ for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"))


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
