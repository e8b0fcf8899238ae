"""Standard streams that are closed, full, broken or unbuffered."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import termios
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tailrace.client import Client
from tests.cli.conftest import COMMAND, Run, Start
from tests.support.server import ServerProcess
from tests.support.together import wait_until

LIMIT_S = 60.0
Shell = Callable[..., "subprocess.CompletedProcess[str]"]
UNBUFFERED = ("", pytest.param("1", marks=pytest.mark.slow))


@pytest.fixture
def shell(server: ServerProcess, tmp_path: Path) -> Shell:
    """Run a script in which `tailrace` is the command."""

    def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = f'tailrace() {{ {shlex.join(COMMAND)} "$@"; }}\n'
        return subprocess.run(
            ["bash", "-c", command + script],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=tmp_path,
            env={**os.environ, "TAILRACE_URL": server.url, **environment},
        )

    return run


@pytest.fixture
def broken() -> Iterator[int]:
    """A pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def waiting(pipe: int) -> int:
    """The number of bytes in a pipe."""
    size = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, size)
    return size[0]


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
def test_partial_writes_to_a_pipe_are_completed(
    server: ServerProcess, client: Client, name: str, unbuffered: str
) -> None:
    """More than the buffer of a non-blocking pipe, whose reader begins when it is full."""
    stream = client.stream(name)
    stream.create("text/plain", body=b"x" * 300_000)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    environment = {**os.environ, "TAILRACE_URL": server.url, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(
        [*COMMAND, "export", name, "-"], stdout=writer, env=environment
    ) as process:
        os.close(writer)
        wait_until(lambda: process.poll() is not None or waiting(reader) > 60_000)
        with os.fdopen(reader, "rb") as source:
            assert len(source.read()) == 300_000
        assert process.wait(LIMIT_S) == 0


OFTEN = """
import sys
import tailrace.cli.progress as progress
from tailrace.cli import main
progress._LINE_EVERY_S = 0.0
main(sys.argv[1:])
"""


@pytest.mark.parametrize("unbuffered", UNBUFFERED)
def test_a_broken_standard_error_does_not_end_an_import(
    server: ServerProcess, run: Run, name: str, broken: int, unbuffered: str
) -> None:
    """It prints progress after each line."""
    done = subprocess.run(
        [sys.executable, "-c", OFTEN, "import", "-", name, "--create", "--progress"],
        input=b"1\n" * 100,
        stderr=broken,
        timeout=LIMIT_S,
        env={**os.environ, "TAILRACE_URL": server.url, "PYTHONUNBUFFERED": unbuffered},
    )
    assert (done.returncode, len(run("read", name).lines)) == (0, 100)


def test_a_failure_keeps_its_exit_code_if_it_cannot_be_printed(
    server: ServerProcess, broken: int
) -> None:
    command = [*COMMAND, "read", "nothing", "--url", server.url]
    assert subprocess.run(command, stderr=broken, timeout=LIMIT_S).returncode == 3


@pytest.mark.parametrize(
    "closed",
    [
        "<&- >&- 2>&-",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("<&-", ">&-", "2>&-")),
    ],
)
def test_closed_streams_count_as_empty(shell: Shell, run: Run, name: str, closed: str) -> None:
    run("append", name, "--create", "--json", "1")
    for command in (f"read {name}", f"append {name}", f"export {name} file", "head nothing"):
        done = shell(f"tailrace {command} {closed}")
        assert "Traceback" not in done.stderr
        assert done.returncode == (3 if "nothing" in command else 0)


def test_an_error_of_standard_output_is_reported(shell: Shell, run: Run, name: str) -> None:
    run("append", name, "--create", "--json", "1")
    for command in (f"read {name}", f"export {name} -", "--help", "completion bash"):
        done = shell(f"tailrace {command} > /dev/full")
        assert (done.returncode, done.stderr) == (
            1,
            "tailrace: standard output: No space left on device\n",
        )


@pytest.mark.parametrize(
    "args",
    [
        "--help",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("--version", "read --help", "completion bash")
        ),
    ],
)
def test_help_to_a_broken_pipe_is_no_error(broken: int, args: str) -> None:
    done = subprocess.run(
        [*COMMAND, *args.split()], stdout=broken, stderr=subprocess.PIPE, timeout=LIMIT_S
    )
    assert (done.returncode, done.stderr) == (0, b"")


WRITING = """
import pathlib, sys, time
from tailrace.cli.files import written
with written(pathlib.Path(sys.argv[1])) as file:
    file.write(b"half")
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
def test_an_incomplete_file_is_removed_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", WRITING, str(tmp_path / "file")], stdout=subprocess.PIPE
        )
    finally:
        signal.signal(number, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        assert process.wait(LIMIT_S) == 128 + number
    assert list(tmp_path.iterdir()) == []


def test_a_producer_that_is_fenced_fails(start: Start, run: Run, client: Client, name: str) -> None:
    client.stream(name).create("text/plain")
    first = start("append", name, "--producer", "Q")
    assert first.stdin is not None and first.stderr is not None

    def has(expected: bytes) -> bool:
        return b"".join(chunk.data for chunk in client.stream(name).read()) == expected

    first.stdin.write(b"first\n")
    first.stdin.flush()
    wait_until(partial(has, b"first\n"))
    assert run("append", name, "--producer", "Q", "second").code == 0
    first.stdin.write(b"third\n")
    first.stdin.close()
    assert first.wait(LIMIT_S) == 4
    assert b"another process uses this producer id" in first.stderr.read()
    assert has(b"first\nsecond")


def test_control_c_prints_how_much_is_stored(start: Start, client: Client, name: str) -> None:
    client.stream(name).create("application/json")
    process = start("append", name)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(b"1\n2\n")
    process.stdin.flush()
    wait_until(lambda: len(list(client.stream(name).read_json())) == 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == 130
    assert b"tailrace: interrupted; 2 of 2 messages stored\n" in process.stderr.read()
