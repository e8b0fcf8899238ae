"""docs/guides/access.md: its examples run in order, and its tables match the code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.server.guard.access import Operation
from tailrace.server.guard.access.access_file import parse_access_file
from tailrace.server.guard.access.grants import parse_grant
from tests.docs.test_docs import ADDRESS, RUNNERS, doc, examples
from tests.support.server import ServerProcess
from tests.support.streams import wait_until

PAGE = "docs/guides/access.md"


@pytest.mark.slow
def test_every_example_prints_its_output(tmp_path: Path) -> None:
    """The server is started and reloaded at the points where the page does so."""
    blocks = examples(PAGE)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = ("--engine", "memory", "--access", str(tmp_path / "access.toml"))
    server = ServerProcess(tmp_path / "data", *options)
    try:
        for index, (language, text) in enumerate(blocks):
            if language == "console" and text.startswith("tailrace serve"):
                server.start()
            elif language == "console":
                assert text == "systemctl reload tailrace\n"
                reload(server)
            if language not in RUNNERS:
                continue
            if server.running:
                text = text.replace(ADDRESS, f"127.0.0.1:{server.port}")
            done = subprocess.run(
                [*RUNNERS[language], text],
                cwd=tmp_path,
                env={**os.environ, "PATH": programs},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, (text, done.stderr)
            following = blocks[index + 1 :][:1]
            expected = following[0][1] if following and following[0][0] == "text" else ""
            assert done.stdout.strip() == expected.strip(), text
    finally:
        server.kill()


def reload(server: ServerProcess) -> None:
    before = len(server.log)
    os.kill(server.pid, signal.SIGHUP)
    wait_until("reloaded", lambda: any("reloaded" in line for line in server.log[before:]))


def test_every_example_of_an_access_file_parses(tmp_path: Path) -> None:
    found = [text for language, text in examples(PAGE) if language == "toml"]
    for text in found:
        parse_access_file(text, tmp_path / "access.toml")
    assert len(found) == 2


def test_the_tables_list_every_operation_and_only_valid_locations(tmp_path: Path) -> None:
    section = doc(PAGE).split("## Grants")[1].split("## Browsers")[0]
    cells = [row.split(" | ")[0] for row in re.findall(r"^\| (`.*)", section, re.MULTILINE)]
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert [name for name in named if not name.startswith("/")] == [*Operation, "*"]
    locations = [name for name in named if name.startswith("/")]
    assert len(locations) > 8
    for location in locations:
        parse_grant(f"read:{location}")
