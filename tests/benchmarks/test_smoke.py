"""Every benchmark that needs no external load generator runs, at its smallest size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import REPO_ROOT

# Without nginx `collapse` reports that, and measures nothing.
SLOW = (
    "catchup",
    "slow_readers",
    "sse_fanout",
    "collapse",
    "creates",
    "bootstrap",
    "forks",
    "listing",
    "hostile",
    "many_streams",
    "subscriptions",
    "client_producer",
    "client_tail",
    "spark_planning",
)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "work", ["json_batches", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_benchmark_reads_back_what_it_wrote(work: str, tmp_path: Path) -> None:
    """A benchmark ends with status 0 only if it read back everything that it wrote."""
    results = tmp_path / "results.json"
    options = ["--smoke", "--against", "none", "--only", work, "--rounds", "1"]
    paths = ["--out", str(results), "--dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *options, *paths],
        cwd=REPO_ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(results.read_text())
