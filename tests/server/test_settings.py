"""Settings: the precedence of sources, and the errors of invalid values."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.server.settings import Settings, SettingsError, load_settings, settings_table


def test_precedence_is_flag_variable_file_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text('port = 1\nhost = "file"\nengine = "memory"\n')
    environ = {"TAILRACE_PORT": "2", "TAILRACE_HOST": "variable", "OTHER": "x"}
    settings = load_settings({"port": "3", "host": None}, environ, file)
    assert (settings.port, settings.host, settings.engine) == (3, "variable", "memory")
    assert settings.chunk_bytes == Settings().chunk_bytes


def test_every_setting_can_be_a_variable() -> None:
    """The default as the text of a variable is the default again, of the same type."""
    for item in settings_table():
        settings = load_settings({}, {f"TAILRACE_{item.name.upper()}": str(item.default)})
        value = getattr(settings, item.name)
        assert value == item.default
        assert type(value) is type(item.default)


def test_an_invalid_value_is_named() -> None:
    for name, value in (
        ("port", "x"), ("port", "-1"), ("port", "65536"), ("port", "1.5"), ("port", True),
        ("engine", "files"), ("ttl", ""), ("chunk_bytes", "0"), ("body_bytes_max", "0"),
        ("long_poll_s", "nan"), ("long_poll_s", "inf"), ("sse_s", "0"), ("log_level", "loud"),
        ("connections_max", "0"), ("drain_s", "-1"), ("insecure", "maybe"), ("traces", ""),
    ):  # fmt: skip
        with pytest.raises(SettingsError) as caught:
            load_settings({name: value}, {})
        assert f"--{name.replace('_', '-')} must be " in str(caught.value)
        assert f", not {value!r}" in str(caught.value)


def test_booleans(tmp_path: Path) -> None:
    """A boolean of the flag or the file, or a word of a variable."""
    for value, expected in (
        (True, True), (False, False), ("true", True), ("NO", False), ("yes", True), ("1", True),
        ("0", False), ("False", False),
    ):  # fmt: skip
        assert load_settings({"insecure": value}, {}).insecure is expected
        if isinstance(value, bool):
            file = tmp_path / "tailrace.toml"
            file.write_text(f"insecure = {str(value).lower()}\n")
            assert load_settings({"insecure": None}, {}, file).insecure is expected
        else:
            assert load_settings({}, {"TAILRACE_INSECURE": value}).insecure is expected


def test_an_invalid_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tailrace.toml"
    for text, error in (
        ("nonsense = 1", "unknown key 'nonsense'; known: host, port, "),
        ("port =", "Invalid value"),
        ("[table]\nport = 1", "unknown key 'table'"),
        ("port = true", "--port must be a whole number, not True"),
    ):
        file.write_text(text)
        with pytest.raises(SettingsError) as caught:
            load_settings({}, {}, file)
        assert str(caught.value).startswith(f"{file}: ")
        assert error in str(caught.value)
    with pytest.raises(SettingsError, match="no such file"):
        load_settings({}, {}, tmp_path / "none.toml")


def test_an_invalid_setting_exits_with_status_2_and_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "serve", "--port", "x", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["tailrace: --port must be a whole number, not 'x'"]
    assert not list(tmp_path.iterdir())
