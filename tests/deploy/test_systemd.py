"""
deploy/systemd/tailrace.service: systemd accepts it, and its commands work.

Machines that run tests often have no running systemd. So `systemd-analyze` checks the file, and its
commands are run as systemd would run them, with the paths of a checkout.
"""

import configparser
import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.server.settings import Settings, load_settings
from tests.support.http import request
from tests.support.server import REPO_ROOT
from tests.support.together import HANG_S, wait_until

UNIT = REPO_ROOT / "deploy" / "systemd" / "tailrace.service"
PROGRAM = "/opt/tailrace/bin/tailrace"
TAILRACE = Path(sys.executable).parent / "tailrace"
# From 0 (safe) to 10.
EXPOSURE_MAX = 1.5
PR_SET_MDWE, PR_SET_NO_NEW_PRIVS = 65, 38

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def unit() -> configparser.ConfigParser:
    """The parsed file; the last value of a repeated key."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(UNIT.read_text())
    return parser


def analyze(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *args], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with a program that exists, since systemd checks that."""
    file = tmp_path / UNIT.name
    file.write_text(UNIT.read_text().replace(PROGRAM, str(TAILRACE)))
    return file


@needs_systemd
def test_systemd_accepts_every_line(installed: Path) -> None:
    done = analyze("verify", "--man=no", str(installed))
    warnings = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, warnings) == (0, [])


@needs_systemd
def test_the_sandbox_is_tight(installed: Path) -> None:
    done = analyze("security", "--offline=true", "--no-pager", str(installed))
    match = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert match is not None, done.stdout + done.stderr
    assert float(match[1]) <= EXPOSURE_MAX


def test_the_stop_timeout_is_longer_than_the_drain() -> None:
    service = unit()["Service"]
    assert int(service["TimeoutStopSec"]) > Settings().drain_s + 10
    assert int(service["LimitNOFILE"]) > Settings().connections_max + 1024
    # Invalid settings exit with 2, which a restart does not fix.
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")


def test_the_settings_of_the_docs_match_the_unit(tmp_path: Path) -> None:
    """docs/deploy.md has a settings file, with the paths of the unit."""
    page = (REPO_ROOT / "docs" / "deploy.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "tailrace.toml").write_text(text)
    settings = load_settings(environ={}, file=tmp_path / "tailrace.toml")
    service = unit()["Service"]
    assert str(settings.data_dir) == "/var/lib/" + service["StateDirectory"]
    assert settings.access == "/etc/tailrace/access.toml"
    assert service["ExecStart"].endswith(" --config /etc/tailrace/tailrace.toml")


def hardened() -> None:
    """The parts of the sandbox that the kernel alone can apply."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_MDWE, 1, 0, 0, 0)
    os.umask(0o077)


def test_start_reload_and_stop(tmp_path: Path) -> None:
    """ExecStart serves, ExecReload keeps it serving, and the stop signal ends it with status 0."""
    service = unit()["Service"]
    state, log_file = tmp_path / "state", tmp_path / "log"
    state.mkdir()
    settings = tmp_path / "tailrace.toml"
    settings.write_text(f'port = 0\ndata_dir = "{state}"\nlog_format = "json"\n')
    start = service["ExecStart"].replace(PROGRAM, str(TAILRACE))
    start = start.replace("/etc/tailrace/tailrace.toml", str(settings))
    assert str(settings) in start
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            shlex.split(start), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=state,
            preexec_fn=hardened,
        )  # fmt: skip

    def logged(event: str) -> list[dict[str, str]]:
        lines = [line for line in log_file.read_text().splitlines() if line.startswith("{")]
        return [found for line in lines if (found := json.loads(line))["event"] == event]

    try:
        wait_until(lambda: bool(logged("listening")) or process.poll() is not None)
        assert process.poll() is None, log_file.read_text()
        stream = logged("listening")[0]["url"] + "/v1/stream/s"
        assert request("PUT", stream, {"Content-Type": "text/plain"}, b"kept").status == 201
        reload = service["ExecReload"].replace("$MAINPID", str(process.pid))
        subprocess.run(shlex.split(reload), check=True, timeout=60)
        wait_until(lambda: bool(logged("reloaded")))
        assert request("GET", f"{stream}?offset=-1").body == b"kept"
        process.send_signal(signal.Signals[service["KillSignal"]])
        assert process.wait(HANG_S) == 0, log_file.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    # By the umask of the unit, only its user can read the data.
    assert {file.stat().st_mode & 0o077 for file in state.iterdir()} == {0}
