"""Every benchmark that needs no load generator from outside runs, at its smallest size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import REPO_ROOT


@pytest.mark.parametrize(
    "work",
    [
        "json_batches",
        "catchup",
        "sse_fanout",
        # Without nginx it says so, and measures nothing.
        "collapse",
        "creates",
        "bootstrap",
        "listing",
        "hostile",
        "many_streams",
        "client_producer",
        "client_tail",
        "spark_planning",
    ],
)
def test_a_benchmark_runs_and_finds_what_it_wrote(work: str, tmp_path: Path) -> None:
    """It ends with status 0 only if everything that it wrote was read back."""
    out = tmp_path / "results.json"
    options = ["--smoke", "--against", "none", "--only", work, "--rounds", "1"]
    places = ["--out", str(out), "--dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *options, *places],
        cwd=REPO_ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(out.read_text())
