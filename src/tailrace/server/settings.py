"""
Settings: one table that flags, `TAILRACE_*` variables, the TOML file and the docs all come from.

A flag wins over a variable, a variable over the file, the file over the default.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

__all__ = ["ENV_PREFIX", "Settings", "SettingsError", "load_settings", "option_name"]

ENV_PREFIX: Final = "TAILRACE_"
_DATA_DIR: Final = Path("data")
_SWITCHES: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class SettingsError(Exception):
    """A setting has a value that it cannot have; the message names it and says what it can be."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def _setting(
    default: Any,
    help_text: str,
    *,
    choices: tuple[str, ...] = (),
    low: float = 0,
    metavar: str | None = None,
) -> Any:
    metadata = {"help": help_text, "choices": choices, "low": low, "metavar": metavar}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set about a server, with its default."""

    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(4437, "Port to listen on; 0 takes a free one.")
    data_dir: Path = _setting(  # noqa: RUF009 - a field
        _DATA_DIR, "Directory of the RocksDB engine.", metavar="DIR"
    )
    engine: str = _setting(
        "rocksdb",
        "Where streams are kept: on disk, or in memory until the process ends.",
        choices=("rocksdb", "memory"),
    )
    ttl: str = _setting(
        "creation",
        "Stream-TTL counts from creation, or starts again with every read and write.",
        choices=("creation", "sliding"),
    )
    chunk_bytes: int = _setting(
        1 << 20, "An answer holds at most this much, or one message if that is larger.", low=1
    )
    body_bytes_max: int = _setting(64 << 20, "A larger request body is refused with 413.", low=1)
    snapshot_bytes_max: int = _setting(1 << 30, "A larger snapshot is refused with 413.", low=1)
    long_poll_s: float = _setting(30.0, "A long-poll with nothing new ends after this.", low=0.05)
    sse_s: float = _setting(60.0, "An SSE connection ends after about this, §8.2.", low=0.05)
    connections_max: int = _setting(
        10_000, "Further connections are answered 503 and closed.", low=1
    )
    disk_reserve_bytes: int = _setting(
        64 << 20, "Appends are answered 507 when less than this, or a tenth of the disk, is free."
    )
    access: str = _setting(
        "", "File of tokens and of whose JWTs are taken; without one, everybody may do everything.",
        metavar="FILE",
    )  # fmt: skip
    insecure: bool = _setting(
        False, "Listen on other addresses than loopback though there is no access control."
    )
    tls_cert: str = _setting("", "Certificate chain (PEM): speak HTTPS alone.", metavar="FILE")
    tls_key: str = _setting("", "Its private key (PEM), if it is in another file.", metavar="FILE")
    limits: str = _setting(
        "", "File of rate limits of clients, and of quotas of buckets.", metavar="FILE"
    )
    waiters_max: int = _setting(
        10_000, "Readers that wait at once; a further one is answered 503.", low=1
    )
    trusted_proxies: str = _setting(
        "", "Addresses or networks, with commas, whose X-Forwarded-For is believed."
    )
    metrics_buckets_max: int = _setting(
        100, "How many buckets have metrics of their own; the others are summed up."
    )
    traces: bool = _setting(False, "Send a trace of each request, as the OTEL_* variables say.")
    drain_s: float = _setting(10.0, "At SIGTERM, requests in flight get this long to finish.")
    log_level: str = _setting(
        "info", "Least severe log line to write.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting(
        "auto",
        "Log lines for people, or as JSON; auto looks whether stderr is a terminal.",
        choices=("auto", "console", "json"),
    )


def option_name(name: str) -> str:
    """`data_dir` is `--data-dir` as a flag."""
    return "--" + name.replace("_", "-")


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """
    Put the settings together from all their places.

    Raises:
        SettingsError: A value is not of its kind, or the file names a setting that does not exist.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = dict(_from_file(file)) if file is not None else {}
    known = {item.name: item for item in fields(Settings)}
    for name in values:
        if name not in known:
            raise SettingsError(f"{file}: unknown setting {name!r}; known: {', '.join(known)}")
    for name in known:
        variable = environ.get(ENV_PREFIX + name.upper())
        if variable is not None:
            values[name] = variable
        if flags is not None and flags.get(name) is not None:
            values[name] = flags[name]
    return Settings(**{name: _convert(known[name], value) for name, value in values.items()})


def _from_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise SettingsError(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: {error}") from None


def _convert(item: Any, value: Any) -> Any:
    name = option_name(item.name)
    kind = type(item.default)
    if kind is bool:
        return _switch(name, value)
    choices = item.metadata["choices"]
    try:
        # bool is an int in Python, and `port = true` a mistake.
        if isinstance(value, bool):
            raise ValueError
        converted: Any = kind(value)
    except (TypeError, ValueError):
        wanted = "a whole number" if kind is int else "a number"
        raise SettingsError(f"{name} must be {wanted}, not {value!r}") from None
    if choices and converted not in choices:
        raise SettingsError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    if kind in (int, float) and not item.metadata["low"] <= converted < float("inf"):
        raise SettingsError(f"{name} must be at least {item.metadata['low']}, not {value!r}")
    if item.name == "port" and converted > 65_535:
        raise SettingsError(f"{name} must be at most 65535, not {value!r}")
    return converted


def _switch(name: str, value: Any) -> bool:
    """A setting that is on or off: a truth value of TOML, or a word of a variable."""
    switched = value if isinstance(value, bool) else _SWITCHES.get(str(value).lower())
    if switched is None:
        raise SettingsError(f"{name} must be true or false, not {value!r}")
    return switched
