"""The session's settings that need no JVM."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tailrace.spark import session


def test_workers_import_the_installed_pyspark_and_not_the_zip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The zip has no bytecode: importing from it takes four times as long."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    python = session._worker_python()
    assert Path(python).is_relative_to(tmp_path)
    package = Path(pyspark.__file__).parent
    path = f"{package}/python/lib/pyspark.zip:{tmp_path}/other"
    code = "import pyspark, sys; print(pyspark.__file__, sys.prefix, *sys.path)"
    found = subprocess.run(
        [python, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert found[:2] == [pyspark.__file__, sys.prefix]
    assert f"{tmp_path}/other" in found


def test_without_a_cache_directory_workers_use_the_driver_s_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert session._worker_python() == sys.executable


def test_local_masters_retry_tasks() -> None:
    assert session._retrying("local") == "local[1,4]"
    assert session._retrying("local[2]") == "local[2,4]"
    assert session._retrying("local[2,1]") == "local[2,1]"
    assert session._retrying("spark://host:7077") == "spark://host:7077"
