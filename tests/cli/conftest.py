"""The command, in this process or in another one, and a server for it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from tailrace.cli import main
from tailrace.client import Client
from tests.support.server import ServerProcess

_names = itertools.count()
COMMAND = (sys.executable, "-m", "tailrace")


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


Run = Callable[..., Done]
Start = Callable[..., "subprocess.Popen[bytes]"]


@contextmanager
def interruptible() -> Iterator[None]:
    """
    Processes that are started in this block end on SIGINT.

    A parent that ignores SIGINT (`nohup`, a background job) has its children ignore it as well,
    unless there is a handler, which a new program resets to the default.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Responses have small chunks and live connections are short, so that every test has both."""
    options = ("--sse-s", "0.5", "--chunk-bytes", "1000", "--read-bytes-max", "1000")
    with ServerProcess(tmp_path_factory.mktemp("cli"), *options) as running:
        yield running


@pytest.fixture
def run(server: ServerProcess) -> Run:
    """Run a command in this process; nothing is a terminal."""

    def run(*args: str, stdin: str | bytes = b"", url: str = server.url) -> Done:
        result = CliRunner().invoke(main, args, input=stdin, env={"TAILRACE_URL": url})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout_bytes, result.stderr)

    return run


@pytest.fixture
def start(server: ServerProcess) -> Iterator[Start]:
    """Start a command in another process, with pipes."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> subprocess.Popen[bytes]:
        with interruptible():
            process = subprocess.Popen(
                [*COMMAND, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "TAILRACE_URL": server.url},
            )
        started.append(process)
        return process

    yield start
    for process in started:
        # `with` closes its pipes and waits for it.
        with process:
            process.kill()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


@pytest.fixture
def name() -> str:
    """The path of a stream that no other test uses."""
    return f"cli/{next(_names)}"


@pytest.fixture
def bucket(client: Client) -> str:
    """A bucket that no other test uses."""
    made = f"bucket-{next(_names)}"
    client.bucket(made).create()
    return made
