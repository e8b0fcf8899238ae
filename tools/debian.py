"""
Programs of the system that tests and benchmarks use; `make test` and `make bench` call this.

    python -m tools.debian chromium nginx

Rule 1: nothing here ends a run. What cannot be installed is told, and what needs it is skipped.

Rule 2: the commands themselves are looked for, not a stamp: on a machine that has them this takes
milliseconds and says nothing.

Rule 3: nothing that is installed is started. Debian starts a service after its installation, and a
web server on port 80 is not what somebody wants who runs tests.

`TAILRACE_NO_APT=1` forbids the installation.
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
# Root's directories of programs: nginx is in one, and they are not on everybody's PATH.
SYSTEM: Final = ("/usr/sbin", "/sbin")
# Debian asks this program whether a service may be started: 101 is no.
POLICY: Final = "/usr/sbin/policy-rc.d"

# As root, with the policy's path and a package. A policy that is there already stays as it is. The
# lists of packages are old, or none at all, on many machines: they are fetched when that shows.
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
    """A command, the Debian package that has it, and what is skipped without it."""

    command: str
    package: str
    skipped: str


PROGRAMS: Final = {
    "chromium": Program("chromium", "chromium", "the tests of the page in a real browser"),
    "nginx": Program("nginx", "nginx", "the tests and the benchmark behind a real proxy"),
    "wrk": Program("wrk", "wrk", "the benchmarks, which need it to make load"),
}


def find(command: str) -> str | None:
    """The path of a command, also where only root looks for it."""
    return shutil.which(command, path=os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM]))


def main(names: Sequence[str]) -> int:
    """See that these programs are there, as far as that can be; always status 0."""
    absent = [PROGRAMS[name] for name in names if find(PROGRAMS[name].command) is None]
    if not absent:
        return 0
    become_root, hindrance = _way_to_install()
    for program in absent:
        why = hindrance or _install(program, become_root)
        if why:
            _say(f"{program.command} is not here, and {why}. Skipped: {program.skipped}.")
    return 0


def _way_to_install() -> tuple[list[str], str]:
    """What to put before a command to run it as root, or why nothing can be installed."""
    if os.environ.get("TAILRACE_NO_APT", "0") not in ("", "0"):
        return [], "TAILRACE_NO_APT forbids to install it"
    if shutil.which("apt-get") is None:
        return [], "there is no apt-get to install it"
    if os.geteuid() == 0:
        return [], ""
    sudo = ["sudo", "-n"]
    if (
        shutil.which("sudo") is None
        or subprocess.run([*sudo, "true"], capture_output=True).returncode
    ):
        return [], "only root can install it (apt-get, by sudo without a password)"
    return sudo, ""


def _install(program: Program, become_root: Sequence[str]) -> str:
    """Install its package; why it is still not there, or nothing."""
    _say(f"installing {program.package} (TAILRACE_NO_APT=1 forbids it)")
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
