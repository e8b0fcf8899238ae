"""Packages from npm. Each `*.test.mjs` file is run by Node's own test runner."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import node
from tests.support.server import BaseServerProcess

HERE = Path(__file__).resolve().parent
RUN_TIMEOUT_S = 240.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def node_packages() -> None:
    """Install them if `pytest` was not started by `make test-all`, which does."""
    node.install(HERE)


@pytest.mark.parametrize("package", ["client", "state", "yjs", "aisdk", "tanstack"])
def test_a_published_package_works_unmodified(server: BaseServerProcess, package: str) -> None:
    done = subprocess.run(
        [node.NODE, "--test", "--test-reporter=spec", f"{package}.test.mjs"],
        cwd=HERE,
        env={**os.environ, "TAILRACE_URL": server.url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # No test ran if the file was not found.
    assert "pass 0" not in done.stdout, done.stdout
