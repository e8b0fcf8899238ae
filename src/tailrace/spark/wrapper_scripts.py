"""Wrapper scripts for the programs that Spark starts, in the user's cache directory."""

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cache_directory", "install_script"]


def cache_directory(environ: Mapping[str, str]) -> Path:
    root = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache"
    return Path(root) / "tailrace"


def install_script(script: Path, content: str) -> None:
    """Write an executable script, atomically: several processes may do so at once."""
    if script.is_file() and script.read_text() == content:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    temporary = script.with_name(f".{script.name}-{os.getpid()}")
    temporary.write_text(content)
    temporary.chmod(0o755)
    temporary.replace(script)
