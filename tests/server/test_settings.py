"""Settings: where each value comes from, and what a wrong one is told."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tailrace.server.settings import Settings, SettingsError, load_settings, settings_table


def test_a_flag_wins_over_a_variable_and_that_over_the_file_and_that_over_the_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text('port = 1\nhost = "file"\nengine = "memory"\n')
    environ = {"TAILRACE_PORT": "2", "TAILRACE_HOST": "variable", "OTHER": "x"}
    settings = load_settings({"port": "3", "host": None}, environ, file)
    assert (settings.port, settings.host, settings.engine) == (3, "variable", "memory")
    assert settings.chunk_bytes == Settings().chunk_bytes


@pytest.mark.parametrize("item", settings_table(), ids=lambda item: item.name)
def test_every_setting_can_be_a_variable(item: Any) -> None:
    """The default, written as a variable, is the default again, of the same type."""
    settings = load_settings({}, {f"TAILRACE_{item.name.upper()}": str(item.default)})
    value = getattr(settings, item.name)
    assert value == item.default
    assert type(value) is type(item.default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "x"), ("port", "-1"), ("port", "65536"), ("port", "1.5"), ("port", True),
        ("engine", "files"), ("ttl", ""), ("chunk_bytes", "0"), ("body_bytes_max", "0"),
        ("long_poll_s", "nan"), ("long_poll_s", "inf"), ("sse_s", "0"), ("log_level", "loud"),
        ("connections_max", "0"), ("drain_s", "-1"), ("insecure", "maybe"), ("traces", ""),
    ],
)  # fmt: skip
def test_a_value_that_a_setting_cannot_have_is_named(name: str, value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({name: value}, {})
    assert f"--{name.replace('_', '-')}" in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(True, True), (False, False), ("true", True), ("NO", False), ("1", True), ("0", False)],
)
def test_what_is_on_or_off(tmp_path: Path, value: object, wanted: bool) -> None:
    """A truth value of the flag or the file, or a word of a variable."""
    assert load_settings({"insecure": value}, {}).insecure is wanted
    if isinstance(value, bool):
        file = tmp_path / "tailrace.toml"
        file.write_text(f"insecure = {str(value).lower()}\n")
        assert load_settings({"insecure": None}, {}, file).insecure is wanted
    else:
        assert load_settings({}, {"TAILRACE_INSECURE": str(value)}).insecure is wanted


@pytest.mark.parametrize("text", ["nonsense = 1", "port =", "[table]\nport = 1"])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"tailrace\.toml"):
        load_settings({}, {}, file)
    with pytest.raises(SettingsError, match="no such file"):
        load_settings({}, {}, tmp_path / "none.toml")


def test_a_wrong_setting_ends_the_start_with_status_2_and_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "serve", "--port", "x", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["tailrace: --port must be a whole number, not 'x'"]
    assert not list(tmp_path.iterdir())
