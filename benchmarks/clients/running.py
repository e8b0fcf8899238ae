"""How each client is installed and run."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import node
from benchmarks.batches import MESSAGE_BYTES
from benchmarks.model import SMOKE, STREAMS_AT, BenchmarkError, Progress, Server, Sizes

HERE = Path(__file__).parent
PYTHON = HERE / ".venv-official"
RUN_SECONDS = 600.0


@dataclass(frozen=True)
class Found:
    """The result of a client."""

    messages: int
    seconds: float
    processor_seconds: float
    note: str

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def processor_us(self) -> float:
        """The processor time of the client per message."""
        return self.processor_seconds / self.messages * 1e6


@dataclass(frozen=True)
class Client:
    """A client: its name, how to install it, and how to call its script."""

    title: str
    stamp: Path | None
    make: Callable[[], None]
    command: Callable[[], list[str]]

    @property
    def is_installed(self) -> bool:
        return self.stamp is None or self.stamp.exists()

    def install(self) -> None:
        """Install it, unless it is installed."""
        if self.stamp is not None and not self.stamp.exists():
            self.make()
            self.stamp.touch()


def _nothing() -> None:
    pass


def _ours() -> list[str]:
    return [sys.executable, "-m", "benchmarks.clients.ours"]


def _make_environment() -> None:
    venv.create(PYTHON, with_pip=True, clear=True)
    pip = [str(PYTHON / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    _do([*pip, "install", "--quiet", "-r", str(HERE / "requirements.txt")])


def _install_packages() -> None:
    _do([*node.npm_command(), "ci", "--ignore-scripts", "--no-audit", "--no-fund"])


def _do(command: list[str]) -> None:
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"a client could not be installed:\n{done.stdout}{done.stderr}")


CLIENTS = {
    "tailrace": Client("Tailrace", None, _nothing, _ours),
    "npm": Client(
        "npm @durable-streams/client 0.2.7",
        HERE / "node_modules" / ".stamp",
        _install_packages,
        lambda: [*node.node_command(), str(HERE / "official.mjs")],
    ),
    "pypi": Client(
        "PyPI durable-streams 0.1.0",
        PYTHON / ".stamp",
        _make_environment,
        lambda: [str(PYTHON / "bin" / "python"), str(HERE / "official.py")],
    ),
}


def usable(sizes: Sizes, progress: Progress) -> list[str]:
    """The clients to measure; reports those that cannot be measured."""
    names: list[str] = []
    for name, client in CLIENTS.items():
        try:
            if sizes is not SMOKE:
                client.install()
        except BenchmarkError as error:
            progress(f"without {client.title}: {error}")
            continue
        if client.is_installed:
            names.append(name)
        else:
            progress(f"without {client.title}: install it with python -m benchmarks.clients")
    return names


def url_of(server: Server, path: str) -> str:
    return f"http://{server.host}:{server.port}{STREAMS_AT}{path}"


def start(name: str, mode: str, work: str, url: str, messages: int) -> subprocess.Popen[str]:
    """Run a client's script."""
    command = [*CLIENTS[name].command(), mode, work, url, str(messages), example()]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> Found:
    """Wait for the script and return its result."""
    try:
        out, _ = process.communicate(timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        raise BenchmarkError("a client did not end") from None
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise BenchmarkError(f"a client failed: {process.args!r}")
    said = json.loads(out.splitlines()[-1])
    note = said.get("note", "")
    return Found(said["messages"], said["seconds"], said["processor_seconds"], note)


def example() -> str:
    """A message of 190 bytes, as JSON; scripts number each message."""
    message = {"id": "000000", "type": "order.updated", "at": "2025-01-01T00:00:00Z", "note": ""}
    short = len(json.dumps(message, separators=(",", ":")))
    message["note"] = "n" * (MESSAGE_BYTES - short)
    return json.dumps(message, separators=(",", ":"))
