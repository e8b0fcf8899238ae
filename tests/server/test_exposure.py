"""§10.1: a server without access control listens on loopback only, unless a setting allows more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.server.lifecycle import check_exposure
from tailrace.server.settings import Settings, SettingsError


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_needs_no_access_control(host: str) -> None:
    check_exposure(Settings(host=host))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.0.2.1", "2001:db8::1", "nowhere.invalid"]
)
def test_any_other_address_needs_access_control(host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_exposure(Settings(host=host))
    assert "no access control" in str(caught.value)
    assert "--access" in caught.value.hint
    assert "--insecure" in caught.value.hint
    check_exposure(Settings(host=host, access="access.toml"))
    check_exposure(Settings(host=host, insecure=True))


def test_the_start_is_refused_before_files_are_created(tmp_path: Path) -> None:
    data = tmp_path / "data"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tailrace", "serve"),
            *("--host", "0.0.0.0", "--port", "0", "--data-dir", str(data)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    what, hint = done.stderr.splitlines()
    assert "0.0.0.0 can be reached from other machines" in what
    assert "tailrace token new" in hint
    assert not data.exists()
