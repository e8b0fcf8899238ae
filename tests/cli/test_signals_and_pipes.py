"""Signals, pipes and restarts: commands as shells and scripts run them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tailrace.cli.demo import TEXT
from tailrace.client import Client
from tests.cli.conftest import COMMAND, Run, Start, interruptible
from tests.support.server import ServerProcess
from tests.support.together import wait_until

LIMIT_S = 60.0

WITHOUT_SERVER = """
import sys
for name in ("brotli", "httptools", "rocksdict", "structlog", "uvloop", "zstandard"):
    sys.modules[name] = None
from tailrace.cli import main
main(sys.argv[1:])
"""


def has(client: Client, name: str, expected: bytes) -> bool:
    return b"".join(chunk.data for chunk in client.stream(name).read()) == expected


@pytest.mark.parametrize(
    ("options", "piece"), [((), b"a whole line\n"), (("--unbuffered",), b"half a line")]
)
def test_input_is_sent_as_it_arrives(
    start: Start, client: Client, name: str, options: tuple[str, ...], piece: bytes
) -> None:
    client.stream(name).create("text/plain")
    process = start("append", name, *options)
    assert process.stdin is not None
    for count in (1, 2, 3):
        process.stdin.write(piece)
        process.stdin.flush()
        wait_until(partial(has, client, name, piece * count))
    process.stdin.close()
    assert process.wait(LIMIT_S) == 0


def test_control_c_while_appending_loses_no_line_that_was_read(
    start: Start, client: Client, name: str
) -> None:
    client.stream(name).create("text/plain")
    process = start("append", name)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    wait_until(partial(has, client, name, b"one\n"))
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == 130
    assert b"Traceback" not in process.stderr.read()


def test_control_c_ends_a_tail(start: Start, client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create("application/json")
    stream.append_json(1)
    process = start("tail", "-f", name)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"1\n"
    stream.append_json(2)
    assert process.stdout.readline() == b"2\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == 130
    assert process.stderr.read().strip() == b""


def test_a_tail_ends_when_the_stream_is_closed(start: Start, client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create("text/plain")
    stream.append(b"early ", "text/plain")
    process = start("tail", "-f", name)
    assert process.stdout is not None
    assert process.stdout.read(6) == b"early "
    stream.append(b"late", "text/plain", close=True)
    assert process.stdout.read() == b"late"
    assert process.wait(LIMIT_S) == 0


def test_a_tail_of_a_stream_that_is_deleted(start: Start, client: Client, name: str) -> None:
    stream = client.stream(name)
    stream.create("text/plain", body=b"x")
    process = start("tail", "-f", name)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(1) == b"x"
    stream.delete()
    assert process.wait(LIMIT_S) == 3
    error = process.stderr.read()
    assert error.startswith(b"tailrace: ") and b"create it" not in error


def test_a_tail_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, Client(server.url) as client:
        stream = client.stream("s")
        stream.create("application/json")
        stream.append_json(1)
        with subprocess.Popen(
            [*COMMAND, "tail", "-f", "s", "--json", "--url", server.url], stdout=subprocess.PIPE
        ) as process:
            try:
                assert process.stdout is not None
                seen = [json.loads(process.stdout.readline())["value"]]
                server.restart()
                stream.append_json(2, 3)
                stream.close()
                seen += [json.loads(line)["value"] for line in process.stdout]
                assert process.wait(LIMIT_S) == 0
            finally:
                process.kill()
        assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    "args",
    [
        ("read",),
        pytest.param(("tail", "-n", "100000"), marks=pytest.mark.slow),
        pytest.param(("export",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_command_ends_without_an_error_when_its_reader_leaves(
    server: ServerProcess, client: Client, name: str, args: tuple[str, ...]
) -> None:
    """The stream is larger than the buffer of a pipe, so that a write fails."""
    stream = client.stream(name)
    stream.create("application/json")
    for _ in range(10):
        stream.append_json(*["x" * 1000] * 100)
    command = [*COMMAND, args[0], name, *args[1:], *(["-"] if args == ("export",) else [])]
    with subprocess.Popen(
        [*command, "--url", server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LIMIT_S) == 0


def without_server(*args: str, url: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVER, *args],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "TAILRACE_URL": url},
    )


@pytest.mark.parametrize("command", ["serve", pytest.param("demo", marks=pytest.mark.slow)])
def test_a_command_names_the_libraries_that_are_missing(command: str) -> None:
    done = without_server(command)
    assert (done.returncode, done.stdout) == (1, "")
    needs = r"tailrace: this command needs \w+: pip install 'tailrace\[server\]'\n"
    assert re.fullmatch(needs, done.stderr)


def test_other_commands_do_not_need_the_servers_libraries(server: ServerProcess, name: str) -> None:
    for args in (("--help",), ("serve", "--help"), ("append", name, "--create", "x")):
        assert without_server(*args, url=server.url).returncode == 0
    assert without_server("read", name, url=server.url).stdout == "x"


def test_a_server_does_not_load_the_client() -> None:
    check = "import sys, tailrace.cli.serve; sys.exit('tailrace.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(shell, marks=pytest.mark.slow) for shell in ("zsh", "fish"))]
)
def test_completion(run: Run, shell: str) -> None:
    done = run("completion", shell)
    assert (done.code, "_TAILRACE_COMPLETE" in done.text) == (0, True)
    asked = subprocess.run(
        COMMAND,
        env={
            **os.environ,
            "_TAILRACE_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": "tailrace boot" if shell != "fish" else "tailrace",
            "COMP_CWORD": "1" if shell != "fish" else "boot",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert "bootstrap" in asked.stdout and "append" not in asked.stdout


def test_a_command_ignores_an_interrupt_if_its_parent_does(
    server: ServerProcess, client: Client, name: str
) -> None:
    """As under `nohup`, or in the background of a script."""
    stream = client.stream(name)
    stream.create("text/plain", body=b"one")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [*COMMAND, "tail", "-f", name, "--url", server.url], stdout=subprocess.PIPE
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.read(3) == b"one"
        process.send_signal(signal.SIGINT)
        stream.append(b"two", "text/plain", close=True)
        assert process.stdout.read() == b"two"
        assert process.wait(LIMIT_S) == 0


def children_of(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in found.read_text().split()] if found.exists() else []


def test_the_demo_prints_every_word_once_and_cleans_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "demo", "--pause", "0.01"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "TMPDIR": str(tmp_path), "TAILRACE_PORT": "not for the demo"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    before, middle, after = done.stdout.split("\n--")
    shown = before.partition("follows it:")[2] + after.partition("live")[2]
    assert shown.split()[: len(TEXT.split())] == TEXT.split()
    assert "the reader was killed at offset" in middle
    assert "none is missing, none came twice" in after
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_the_demo_cleans_up_when_it_is_stopped(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with interruptible():
        process = subprocess.Popen(
            [*COMMAND, "demo", "--pause", "5"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    with process:
        assert process.stdout is not None and process.stderr is not None
        wait_until(lambda: len(children_of(process.pid)) == 2)
        children = children_of(process.pid)
        process.send_signal(number)
        assert process.wait(LIMIT_S) == code
        assert "Traceback" not in process.stderr.read()
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    assert list(tmp_path.iterdir()) == []
