"""docs/guides/access.md does what it says: its examples run in their order, its tables are true."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tailrace.server.guard.access import Operation
from tailrace.server.guard.access.access_file import parse_access_file
from tailrace.server.guard.access.grants import parse_grant
from tests.docs.test_docs import ADDRESS, RUNNERS, doc, examples
from tests.support.server import ServerProcess
from tests.support.streams import wait_until

PAGE = "docs/guides/access.md"


def test_every_example_prints_what_it_says(tmp_path: Path) -> None:
    """`tailrace serve` is started where the page starts it, and reloaded where it is told to be."""
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


def test_every_example_of_the_file_is_one(tmp_path: Path) -> None:
    found = [text for language, text in examples(PAGE) if language == "toml"]
    for text in found:
        parse_access_file(text, tmp_path / "access.toml")
    assert len(found) == 2


def test_the_tables_have_every_operation_and_only_places(tmp_path: Path) -> None:
    section = doc(PAGE).split("## Grants")[1].split("## Browsers")[0]
    cells = [row.split(" | ")[0] for row in re.findall(r"^\| (`.*)", section, re.MULTILINE)]
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert [name for name in named if not name.startswith("/")] == [*Operation, "*"]
    places = [name for name in named if name.startswith("/")]
    assert len(places) > 8
    for place in places:
        parse_grant(f"read:{place}")
