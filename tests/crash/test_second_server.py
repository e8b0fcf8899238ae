"""Two servers must never share a directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.http import request
from tests.support.server import REPO_ROOT, ServerProcess

STREAM = "/v1/stream/a"
TEXT = {"Content-Type": "text/plain"}


def test_second_server_is_refused(tmp_path: Path) -> None:
    """
    Goal: a second server on a directory in use ends at once with a message that names it, and
    harms nothing.

    Method: start a second process on the data of a running one, several times, and read its exit
    code and output; meanwhile and afterwards the first one takes appends, which survive SIGKILL.
    """
    data_dir = tmp_path / "data"
    command = [sys.executable, "-m", "tailrace", "serve", "--port", "0"]
    with ServerProcess(data_dir) as first:
        assert request("PUT", first.url + STREAM, TEXT).status == 201
        for number in range(3):
            second = subprocess.run(
                [*command, "--data-dir", str(data_dir)],
                cwd=REPO_ROOT,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert second.returncode not in (0, None), second
            assert second.returncode > 0, f"it was ended by a signal: {second}"
            lines = (second.stdout + second.stderr).strip().splitlines()
            assert len(lines) == 1, lines
            assert str(data_dir) in lines[0]
            assert "in use" in lines[0]
            response = request("POST", first.url + STREAM, TEXT, str(number).encode())
            assert response.status == 204
        first.restart()
        assert request("GET", first.url + STREAM).body == b"012"
