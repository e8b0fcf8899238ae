"""Progress: the numbers in its text, and where it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.cli.progress import JobProgress
from tailrace.spark.progress import estimate
from tests.cli.conftest import Run
from tests.cli.terminal import Terminal
from tests.support.server import ServerProcess


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines"
    file.write_text('{"a": 1}\n' * 10_000)
    return file


def test_the_rate_of_a_job_does_not_include_the_start_of_spark() -> None:
    clock = Clock()
    progress = JobProgress("fold", 1000, clock)
    assert progress.text() == "starting Spark"
    clock.now += 30
    progress(0)
    clock.now += 10
    progress(250)
    assert progress.text() == "250 of 1,000 messages, 25/s, 0:00:30 left"
    progress(100)
    assert progress.done == 250
    progress(1000)
    assert progress.text() == "1,000 of 1,000 messages, 100/s"


def test_messages_of_a_running_batch_are_estimated_by_its_tasks() -> None:
    assert estimate(100, 1000, 1, 4) == 325
    assert estimate(100, None, 1, 4) == 100
    assert estimate(100, 1000, 0, 0) == 100
    assert estimate(1200, 1000, 1, 4) == 1200


def test_a_terminal_shows_a_bar(server: ServerProcess, name: str, lines: Path) -> None:
    with Terminal(server.url, "import", str(lines), name, "--create") as terminal:
        assert terminal.finish() == 0
    *_, bar, result, _ = terminal.seen.split("\n")
    assert "import" in bar and "━━━━━━━━━━━━━━━━━━━━" in bar and "100%" in bar
    assert "87.9 KiB of 87.9 KiB, 10,000 messages, " in bar
    assert result.endswith(f"{name}: 10,000 messages imported")


@pytest.mark.slow
def test_a_bar_is_not_wider_than_its_terminal(
    server: ServerProcess, name: str, lines: Path
) -> None:
    for columns in (10, 40, 80):
        args = ("import", str(lines), name, "--create")
        with Terminal(server.url, *args, columns=columns) as terminal:
            assert terminal.finish() == 0
        assert "\x1b" in terminal.seen
        bar, _, result = terminal.without_escapes().rpartition(f"{name}: ")
        assert result == "10,000 messages imported\n"
        widths = [len(line) for line in bar.replace("\n", "\r").split("\r")]
        assert 0 < max(widths) <= columns
        assert bar.count("\n") == 1


def test_a_dumb_terminal_shows_lines(server: ServerProcess, name: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("1\n")
    with Terminal(server.url, "import", str(file), name, "--create", term="dumb") as terminal:
        assert terminal.finish() == 0
    assert "\x1b" not in terminal.seen and "\r" not in terminal.seen
    assert terminal.seen.startswith("import: 2 B of 2 B, 1 message, ")


def test_a_pipe_gets_lines_only_if_they_are_requested(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1\n2\n")
    done = run("import", str(file), name, "--create", "--progress")
    assert done.err.splitlines()[-1].startswith("import: 4 B of 4 B, 2 messages, ")
    done = run("export", name, str(tmp_path / "b"), "--progress")
    assert ", 2 messages, " in done.err.splitlines()[-1]
    done = run("export", name, str(tmp_path / "b"))
    assert done.err == ""


def test_an_export_counts_messages(
    server: ServerProcess, run: Run, name: str, tmp_path: Path
) -> None:
    run("import", "-", name, "--create", stdin="1\n" * 2000)
    with Terminal(server.url, "export", name, str(tmp_path / "out")) as terminal:
        assert terminal.finish() == 0
    assert ", 2,000 messages, " in terminal.seen
    assert terminal.seen.endswith(f"{name}: 2,000 messages in {tmp_path / 'out'}\n")
