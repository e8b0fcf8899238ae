"""The benchmarks that need Spark run, at their smallest size; the rest is in tests/benchmarks."""

import subprocess
import sys
from pathlib import Path

from tests.support.server import REPO_ROOT

WORKLOADS = ("spark_read", "spark_write", "spark_fold", "spark_archive")


def test_the_benchmarks_of_spark_run_and_find_what_they_wrote(tmp_path: Path) -> None:
    """It ends with status 0 only if everything that it wrote was read back."""
    options = ["--smoke", "--against", "none", "--rounds", "1"]
    only = [word for work in WORKLOADS for word in ("--only", work)]
    places = ["--out", str(tmp_path / "results.json"), "--dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *options, *only, *places],
        cwd=REPO_ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
