"""
Settings: flags, `TAILRACE_*` variables, the TOML file and the docs come from one table.

A flag overrides a variable, a variable overrides the file, and the file overrides the default.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec import Meta

from tailrace.exceptions import ExitCode, TailraceError
from tailrace.server.config import choices, convert

__all__ = [
    "ENV_PREFIX", "AccessNotConfigured", "Setting", "Settings", "SettingsError", "load_settings",
    "option_name", "settings_table",
]  # fmt: skip

ENV_PREFIX: Final = "TAILRACE_"
# In addition to those that msgspec converts.
_BOOLEANS: Final = {"yes": True, "no": False}
_S_MAX: Final = 1e9


class SettingsError(TailraceError):
    """A setting, or a file that it names, cannot be used; the text names it and says why."""

    message = "{reason}"
    exit_code = ExitCode.USAGE
    reason: str


class AccessNotConfigured(SettingsError):
    """The server would listen on a network without access control (§10.1)."""

    message = (
        "--host {reason} can be reached from other machines, or is unknown to this one, and there "
        "is no access control"
    )
    hint = (
        "make a token with tailrace token new --file access.toml --name admin --grant '*:/', and "
        "serve with --access access.toml; or serve every client with --insecure"
    )


_Positive: TypeAlias = Annotated[int, Meta(ge=1)]
_Natural: TypeAlias = Annotated[int, Meta(ge=0)]
_Seconds: TypeAlias = Annotated[float, Meta(ge=0.05, le=_S_MAX)]
_File: TypeAlias = Annotated[str, Meta(extra={"metavar": "FILE"})]
_Directory: TypeAlias = Annotated[Path, Meta(extra={"metavar": "DIR"})]
_Engine: TypeAlias = Literal["rocksdb", "memory"]
_Ttl: TypeAlias = Literal["creation", "sliding"]
_Offsets: TypeAlias = Literal["lenient", "strict"]
# Not below /-/, which is the server's own.
_Root: TypeAlias = Annotated[
    str,
    Meta(
        pattern="^(/[A-Za-z0-9_~][A-Za-z0-9._~-]*)+/$",
        description="a path such as /streams/, of letters, digits, '.', '_', '~' and '-'",
    ),
]
_Networks: TypeAlias = Literal["public", "loopback", "private"]
_Url: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^(https?://[^\s?#]+)?$", description="a URL such as https://streams.example.org"
    ),
]
_LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
_LogFormat: TypeAlias = Literal["auto", "console", "json"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a server: type, help text and default."""

    # fmt: off
    host: Annotated[str, "Address to listen on."] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65_535), "Port to listen on; 0 selects a free one."] = 4437
    data_dir: Annotated[_Directory, "Directory of the RocksDB engine."] = Path("data")
    engine: Annotated[
        _Engine, "Where streams are stored: on disk, or in memory until the process ends."
    ] = "rocksdb"
    ttl: Annotated[
        _Ttl, "Stream-TTL counts from creation, or starts again with every read and write."
    ] = "creation"
    stream_root: Annotated[
        _Root, "Path of the base protocol's streams, in addition to /v1/stream/ and /v1/streams/."
    ] = "/v1/stream/"
    offsets: Annotated[
        _Offsets, "Offsets that a client computed: on the base surface, read from the message "
        "before, or refuse them; buckets refuse them always."] = "lenient"
    read_bytes_max: Annotated[
        _Positive, "Maximum size of a catch-up read, unless a single message is larger."
    ] = 64 << 20
    chunk_bytes: Annotated[
        _Positive, "Maximum size of a long-poll or an event, unless a single message is larger."
    ] = 1 << 20
    body_bytes_max: Annotated[
        _Positive, "A larger request body is rejected with 413."] = 64 << 20
    snapshot_bytes_max: Annotated[
        _Positive, "A larger snapshot is rejected with 413."] = 1 << 30
    long_poll_s: Annotated[_Seconds, "A long-poll without new data ends after this time."] = 30.0
    sse_s: Annotated[_Seconds, "An SSE connection ends after about this time, §8.2."] = 60.0
    connections_max: Annotated[
        _Positive, "Further connections get a 503 response and are closed."] = 10_000
    disk_reserve_bytes: Annotated[
        _Natural, "Appends get 507 when less than this, or a tenth of the disk, is free."
    ] = 64 << 20
    access: Annotated[
        _File, "Access file: tokens, and the issuer of accepted JWTs. Without it, every client "
        "has full access."] = ""
    insecure: Annotated[
        bool, "Listen on addresses other than loopback without access control."] = False
    tls_cert: Annotated[_File, "Certificate chain (PEM): serve HTTPS only."] = ""
    tls_key: Annotated[_File, "Private key (PEM), if it is not in the same file."] = ""
    limits: Annotated[
        _File, "Limits file: rate limits of clients, and quotas of buckets."] = ""
    waiters_max: Annotated[
        _Positive, "Maximum of concurrent waiting readers; further ones get 503."] = 10_000
    trusted_proxies: Annotated[
        str, "Addresses or networks, separated by commas, whose X-Forwarded-For is trusted."
    ] = ""
    public_url: Annotated[
        _Url, "URL of this server in webhooks, if clients reach it by another than they send in "
        "Host."] = ""
    webhook_networks: Annotated[
        _Networks, "Where webhooks may go: global addresses only; also localhost and 127.0.0.x; "
        "or also private networks."] = "loopback"
    metrics_buckets_max: Annotated[
        _Natural, "Maximum of buckets with their own metrics; the others are summed up."] = 100
    traces: Annotated[
        bool, "Send a trace of each request, configured by the OTEL_* variables."] = False
    drain_s: Annotated[
        float, Meta(ge=0, le=_S_MAX), "Time for requests in flight to finish after SIGTERM."
    ] = 10.0
    log_level: Annotated[_LogLevel, "Minimum severity of log lines."] = "info"
    log_format: Annotated[
        _LogFormat, "Log lines as text or as JSON; auto means text if stderr is a terminal."
    ] = "auto"
    # fmt: on


class Setting(NamedTuple):
    """The description of one setting, for the command line and the docs."""

    name: str
    default: Any
    help: str
    metavar: str


def settings_table() -> list[Setting]:
    """All settings, in the order of their declaration."""
    table = []
    for item in msgspec.structs.fields(Settings):
        annotations = get_args(item.type)
        (text,) = (arg for arg in annotations if isinstance(arg, str))
        named = [arg.extra["metavar"] for arg in annotations if getattr(arg, "extra", None)]
        metavar = "|".join(choices(item.type)) or type(item.default).__name__.upper()
        table.append(Setting(item.name, item.default, text, *named or [metavar]))
    return table


def option_name(name: str) -> str:
    """`data_dir` is `--data-dir` as a flag."""
    return "--" + name.replace("_", "-")


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """
    Merge flags, environment variables, the file and the defaults.

    Raises:
        SettingsError: A value is invalid, or the file has an unknown setting.
    """
    environ = os.environ if environ is None else environ
    values = _from_file(file) if file is not None else {}
    for name in Settings.__struct_fields__:
        variable = environ.get(ENV_PREFIX + name.upper())
        if variable is not None:
            values[name] = variable
        if flags is not None and flags.get(name) is not None:
            values[name] = flags[name]
    return _convert(values)


def _from_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise SettingsError(f"{file}: no such file") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: {error}") from None
    _convert(values, f"{file}: ")
    return values


def _convert(values: Mapping[str, Any], source: str = "") -> Settings:
    values = dict(values)
    for item in msgspec.structs.fields(Settings):
        if isinstance(item.default, bool) and isinstance(word := values.get(item.name), str):
            values[item.name] = _BOOLEANS.get(word.lower(), word)
    try:
        # Not strict: flags and variables are text.
        return convert(values, Settings, strict=False, dec_hook=_custom_type, top_level=option_name)
    except ValueError as error:
        raise SettingsError(f"{source}{error}") from None


def _custom_type(type_: type, value: Any) -> Any:
    return type_(value)
