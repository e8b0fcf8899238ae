"""`tools.debian`: installs programs of the system where possible, and reports where not."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.server import REPO_ROOT
from tools import debian

FakeApt = Callable[[str], Path]

# Scripts of a fake apt-get; `$calls` has a line per call, `$bin` is the only directory of programs.
INSTALLS = (
    'case "$1" in install) for last; do :; done; touch "$bin/$last"; chmod +x "$bin/$last";; esac'
)
NEEDS_UPDATE = f'if [ "$1" = install ] && ! grep -q ^update "$calls"; then exit 100; fi; {INSTALLS}'
FAILS = 'echo "E: Unable to locate package"; exit 100'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory of programs, for a user that seems to be root."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("sh", "rm", "chmod", "touch", "grep"):
        found = debian.find(name)
        assert found is not None
        (directory / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("TAILRACE_NO_APT", raising=False)
    monkeypatch.setattr(debian, "SYSTEM", ())
    monkeypatch.setattr(debian, "POLICY", str(tmp_path / "policy-rc.d"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return directory


@pytest.fixture
def apt(programs: Path, tmp_path: Path) -> FakeApt:
    """Makes a fake apt-get that records its calls, and the policy at that time."""

    def make(does: str) -> Path:
        calls, policy = tmp_path / "calls", tmp_path / "policy-rc.d"
        text = f"""#!{programs}/sh
bin={programs} calls={calls}
seen=$({programs}/sh {policy} >/dev/null 2>&1; echo $?)
echo "$* ($DEBIAN_FRONTEND, policy $seen)" >> "$calls"
{does}
"""
        (programs / "apt-get").write_text(text)
        (programs / "apt-get").chmod(0o755)
        return calls

    return make


def test_an_existing_program_is_not_installed(
    programs: Path, apt: FakeApt, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = apt(INSTALLS)
    (programs / "nginx").touch(0o755)
    assert debian.main(["nginx"]) == 0
    assert not calls.exists() and capsys.readouterr().err == ""


def test_a_missing_program_is_installed_and_its_service_not_started(
    programs: Path, apt: FakeApt, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Debian runs the policy before it starts a service, and 101 forbids that."""
    calls = apt(INSTALLS)
    assert debian.main(["chromium", "nginx"]) == 0
    install = "install --yes --quiet --no-install-recommends"
    assert calls.read_text().splitlines() == [
        f"{install} chromium (noninteractive, policy 101)",
        f"{install} nginx (noninteractive, policy 101)",
    ]
    assert not (tmp_path / "policy-rc.d").exists()
    said = capsys.readouterr().err
    assert "installing chromium" in said and "installing nginx" in said and "Skipped" not in said
    assert debian.main(["chromium", "nginx"]) == 0
    assert len(calls.read_text().splitlines()) == 2


def test_package_lists_are_updated_if_a_package_is_not_found(apt: FakeApt) -> None:
    calls = apt(NEEDS_UPDATE)
    assert debian.main(["nginx"]) == 0
    assert [line.split()[0] for line in calls.read_text().splitlines()] == [
        "install",
        "update",
        "install",
    ]


def test_an_existing_policy_is_kept(apt: FakeApt, tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("exit 7\n")
    calls = apt(INSTALLS)
    debian.main(["nginx"])
    assert "policy 7" in calls.read_text()
    assert policy.read_text() == "exit 7\n"


def test_a_failed_installation_is_reported_and_the_rest_installed(
    apt: FakeApt, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = apt(f'case "$*" in *chromium*|update*) {FAILS};; esac; {INSTALLS}')
    assert debian.main(["chromium", "nginx"]) == 0
    said = capsys.readouterr().err
    assert "apt-get could not install chromium (status 100)" in said
    assert "Skipped: the browser tests of the web page." in said
    assert "Unable to locate package" in said
    assert "nginx is not installed" not in said and "nginx" in calls.read_text()


def test_a_variable_forbids_installation(
    apt: FakeApt, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = apt(INSTALLS)
    monkeypatch.setenv("TAILRACE_NO_APT", "1")
    assert debian.main(["nginx"]) == 0
    assert not calls.exists()
    said = capsys.readouterr().err
    assert "nginx is not installed, and TAILRACE_NO_APT prevents its installation." in said


@pytest.mark.usefixtures("programs")
def test_a_machine_without_apt(capsys: pytest.CaptureFixture[str]) -> None:
    assert debian.main(["nginx"]) == 0
    assert "there is no apt-get to install it" in capsys.readouterr().err


@pytest.mark.parametrize("sudo", ["none", "asks", "allows"])
def test_other_users_need_sudo_without_a_password(
    sudo: str,
    programs: Path,
    apt: FakeApt,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    calls = apt(INSTALLS)
    (programs / "true").symlink_to("/bin/true")
    if sudo != "none":
        does = "exit 1" if sudo == "asks" else 'shift; exec "$@"'
        (programs / "sudo").write_text(f"#!{programs}/sh\n{does}\n")
        (programs / "sudo").chmod(0o755)
    assert debian.main(["nginx"]) == 0
    assert calls.exists() == (sudo == "allows")
    assert ("only root can install it" in capsys.readouterr().err) == (sudo != "allows")


def test_the_targets_of_make_call_it_before_anything_else() -> None:
    """`make test` installs nothing on the system; `make test-all` and `make bench` may."""
    for target, programs in (
        ("test", None),
        ("test-all", "chromium nginx wrk"),
        ("bench", "nginx wrk"),
    ):
        shown = subprocess.run(
            ["make", "--dry-run", "--always-make", target, f"PYTHON={sys.executable}"],
            cwd=REPO_ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        lines = shown.splitlines()
        called = [number for number, line in enumerate(lines) if "-m tools.debian" in line]
        if programs is None:
            assert called == []
            continue
        first = next(n for n, line in enumerate(lines) if "-m pytest" in line or "-m bench" in line)
        assert len(called) == 1 and called[0] < first
        assert lines[called[0]].endswith(f"-m tools.debian {programs}")
