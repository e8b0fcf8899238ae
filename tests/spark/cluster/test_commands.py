"""The command with a real Spark: an interrupt, and the error of a task."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.client import Client
from tests.cli.conftest import COMMAND, interruptible
from tests.cli.terminal import Terminal
from tests.support.server import ServerProcess
from tests.support.together import wait_until

pytestmark = pytest.mark.slow

LIMIT_S = 200.0
SPARK = ("--master", "local[2]", "--conf", "spark.driver.memory=512m")
# A JVM starts in 10 seconds, and in several times that where others are at work.
pytestmark = pytest.mark.timeout(500)


def alive_in(session: int, age_s: int = 0) -> list[str]:
    """The processes of a session that are still running."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "sid=,stat=,etimes=,comm="], capture_output=True, text=True, check=True
    )
    rows = [line.split(maxsplit=3) for line in listed.stdout.splitlines()]
    return [
        name
        for sid, state, age, name in rows
        if int(sid) == session and state[0] != "Z" and int(age) >= age_s
    ]


def fill(client: Client, bucket: str) -> None:
    for name in ("a", "<b>"):
        stream = client.bucket(bucket).stream(name)
        stream.create("application/json")
        stream.append_json(*[{"id": number % 5} for number in range(500)])


def started(server: ServerProcess, *args: str) -> subprocess.Popen[str]:
    with interruptible():
        return subprocess.Popen(
            [*COMMAND, "pipeline", *args, *SPARK],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TAILRACE_URL": server.url},
            start_new_session=True,
        )


@pytest.fixture
def bucket(client: Client) -> str:
    client.bucket("commands").create()
    return "commands"


@pytest.fixture
def target(tmp_path: Path) -> ServerProcess:
    return ServerProcess(tmp_path / "target")


def test_an_archive_on_a_terminal(
    server: ServerProcess, client: Client, bucket: str, tmp_path: Path
) -> None:
    """A progress bar, one line with the result, and no output of Spark."""
    fill(client, bucket)
    table = tmp_path / "table"
    args = ("pipeline", "archive", bucket, str(table), *SPARK)
    with Terminal(server.url, *args, columns=200) as terminal:
        assert terminal.finish() == 0
    bars, _, result = terminal.without_escapes().partition("\n")
    assert "archive" in bars and "starting Spark" in bars
    assert "100% 1,000 of 1,000 messages" in bars
    (line,) = result.splitlines()
    assert line.startswith(f"{bucket}: 1,000 messages added to {table}: ")


def test_an_interrupted_mirror_is_completed_by_the_next_run(
    server: ServerProcess, client: Client, bucket: str, target: ServerProcess, tmp_path: Path
) -> None:
    """Ctrl-C ends the command silently; the next run reports a closed target stream."""
    fill(client, bucket)
    with target, Client(target.url) as there:
        args = ("mirror", bucket, target.url, "--checkpoint", str(tmp_path / "checkpoint"))
        with started(server, *args, "--every", "0.2") as process:
            wait_until_for(lambda: count(there, bucket) == 1000)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=LIMIT_S)
            assert (process.returncode, out, err.strip()) == (130, "", "")
        wait_until(lambda: alive_in(process.pid) == [])

        there.bucket(bucket).stream("a").close()
        client.bucket(bucket).stream("a").append_json("late")
        with started(server, *args) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, out) == (4, "")
        assert len(err.splitlines()) <= 2 and "closed" in err and "Traceback" not in err
        assert count(there, bucket) == 1000


def test_an_interrupt_while_spark_starts_leaves_nothing(
    server: ServerProcess, client: Client, bucket: str, tmp_path: Path
) -> None:
    fill(client, bucket)
    with started(server, "archive", bucket, str(tmp_path / "table")) as process:
        # One that only says its version has ended by then.
        wait_until_for(lambda: "java" in alive_in(process.pid, age_s=2))
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out, err.strip()) == (130, "", "")
    wait_until(lambda: alive_in(process.pid) == [])


def test_archive_and_replay(
    server: ServerProcess, client: Client, bucket: str, tmp_path: Path
) -> None:
    fill(client, bucket)
    table = tmp_path / "table"
    with started(server, "archive", bucket, str(table), "--progress") as process:
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-1].startswith("archive: 1,000 of 1,000 messages")
    args = ("replay", str(table), "--id", "test", "--target-bucket", f"{bucket}-copy")
    with started(server, *args) as process:
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out, err) == (0, "", "")
    assert count(client, f"{bucket}-copy") == 1000


def count(client: Client, bucket: str) -> int:
    """The messages of a bucket; none if it does not exist."""
    try:
        streams = client.bucket(bucket).streams()
        return sum(int((each.next_offset or "0").partition("_")[0]) for each in streams)
    except Exception:
        return 0


def wait_until_for(what: Callable[[], bool]) -> None:
    """The time that a JVM may need on a busy machine."""
    try:
        wait_until(what)
    except AssertionError:
        wait_until(what)
