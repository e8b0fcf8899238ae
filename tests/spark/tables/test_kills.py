"""SIGKILL at every step of a commit, a compaction and a change of types, for every format."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.spark.tables import FORMATS
from tests.support.server import REPO_ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("action", ["commit", "compact", "retype"])
def test_a_kill_at_any_step_loses_and_duplicates_nothing(
    format: str, action: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.tables.kills", format, action, str(tmp_path)],
        cwd=REPO_ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Staging, journal, two moves, the record: a table that reported fewer would prove nothing.
    assert int(done.stdout) >= 7
