"""
Install system programs for tests and benchmarks; `make test-all` and `make bench` call this.

    python -m tools.debian chromium nginx

Rule 1: nothing here fails a run. A program that cannot be installed is reported, and the tests that
need it are skipped.

Rule 2: the commands themselves are looked up, not a stamp file. If all are installed, this takes
milliseconds and prints nothing.

Rule 3: no installed service is started. Debian would start nginx on port 80.

`TAILRACE_NO_APT=1` prevents the installation.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["PROGRAMS", "Program", "find", "main"]

INSTALL_S_MAX: Final = 600
SHOWN_LINES: Final = 5
# Root's program directories, which may be missing from PATH; nginx is in one of them.
SYSTEM: Final = ("/usr/sbin", "/sbin")
# Debian calls this program before it starts a service: status 101 forbids it.
POLICY: Final = "/usr/sbin/policy-rc.d"

# Runs as root, with the policy's path and a package. An existing policy is kept. The package lists
# may be outdated or missing: they are fetched if the first attempt fails.
SCRIPT: Final = """
policy=$1 package=$2
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\\nexit 101\\n' > "$policy" && chmod 755 "$policy" || exit
fi
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install --yes --quiet --no-install-recommends "$package"; }
install || { apt-get update --quiet && install; }
"""


@dataclass(frozen=True)
class Program:
    """A command, its Debian package, and what is skipped without it."""

    command: str
    package: str
    skipped: str


PROGRAMS: Final = {
    "chromium": Program("chromium", "chromium", "the browser tests of the web page"),
    "nginx": Program("nginx", "nginx", "the tests and the benchmark behind nginx"),
    "wrk": Program("wrk", "wrk", "the benchmarks, which use it as load generator"),
}


def find(command: str) -> str | None:
    """The path of a command, including root's program directories."""
    return shutil.which(command, path=os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM]))


def main(names: Sequence[str]) -> int:
    """Install the programs that are missing, if possible; the status is always 0."""
    absent = [PROGRAMS[name] for name in names if find(PROGRAMS[name].command) is None]
    if not absent:
        return 0
    become_root, obstacle = _how_to_install()
    for program in absent:
        reason = obstacle or _install(program, become_root)
        if reason:
            _say(f"{program.command} is not installed, and {reason}. Skipped: {program.skipped}.")
    return 0


def _how_to_install() -> tuple[list[str], str]:
    """The prefix to run a command as root, or the reason why nothing can be installed."""
    if os.environ.get("TAILRACE_NO_APT", "0") not in ("", "0"):
        return [], "TAILRACE_NO_APT prevents its installation"
    if shutil.which("apt-get") is None:
        return [], "there is no apt-get to install it"
    if os.geteuid() == 0:
        return [], ""
    sudo = ["sudo", "-n"]
    if (
        shutil.which("sudo") is None
        or subprocess.run([*sudo, "true"], capture_output=True).returncode
    ):
        return [], "only root can install it (or sudo without a password)"
    return sudo, ""


def _install(program: Program, become_root: Sequence[str]) -> str:
    """Install a package; returns the reason if it failed, else an empty string."""
    _say(f"installing {program.package} (TAILRACE_NO_APT=1 prevents this)")
    script = ["sh", "-c", SCRIPT, "sh", POLICY, program.package]
    try:
        done = subprocess.run(
            [*become_root, *script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_S_MAX,
        )
    except subprocess.TimeoutExpired:
        return f"apt-get took longer than {INSTALL_S_MAX} s"
    if find(program.command) is not None:
        return ""
    for line in done.stdout.splitlines()[-SHOWN_LINES:]:
        _say(f"  | {line}")
    return f"apt-get could not install {program.package} (status {done.returncode})"


def _say(text: str) -> None:
    sys.stderr.write(f"debian: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
