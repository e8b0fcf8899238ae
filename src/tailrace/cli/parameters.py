"""Types of options and arguments. Values that no server accepts are rejected here."""

import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
from click.types import FuncParamType

__all__ = [
    "BUCKET",
    "BUCKET_OR_EMPTY",
    "EPOCH",
    "HEADER",
    "HEADER_TEXT",
    "PAUSE",
    "SECONDS",
    "SERVER_URL",
    "SETTING",
    "TEXT",
    "check_url",
    "command_line",
    "count_option",
    "data_dir_option",
    "is_url",
]

_Command = Callable[..., Any]

_SECONDS_MAX: Final = 86_400.0
# X§1.1
_BUCKET_ID: Final = re.compile(r"[a-z0-9_-]{4,64}", re.ASCII)
_CLIENT_HEADERS: Final = frozenset(("connection", "content-length", "host", "transfer-encoding"))


def text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        # Python represents arguments that are not UTF-8 by surrogates, which cannot be sent.
        raise click.BadParameter(f"{value!r} is not UTF-8.") from None
    return value


def _is_header_text(value: str) -> bool:
    # Imported when it is needed: `token` and `demo` use this module, and not the client.
    from tailrace.client.requests import is_header_text

    return is_header_text(value)


def header_text(value: str) -> str:
    if not _is_header_text(value):
        raise click.BadParameter(f"{value!r} is not printable ASCII text.")
    return value


def header(value: str) -> tuple[str, str]:
    name, colon, content = (part.strip() for part in value.partition(":"))
    if not colon or not _is_header_text(name) or (content and not _is_header_text(content)):
        raise click.BadParameter(f"{value!r} is not of the form 'Name: value'")
    if name.lower() in _CLIENT_HEADERS:
        raise click.BadParameter(f"{name} is set by the client")
    return name, content


def setting(value: str) -> tuple[str, str]:
    name, equals, content = value.partition("=")
    if not equals or not name.strip():
        raise click.BadParameter(f"{value!r} is not of the form name=value")
    return name.strip(), content


def bucket(value: str) -> str:
    if not _BUCKET_ID.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not 4 to 64 of a-z, 0-9, _ and -.")
    return value


def bucket_or_empty(value: str) -> str:
    return bucket(value) if value else value


def pause(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    # False for NaN as well.
    if not 0 <= seconds <= _SECONDS_MAX:
        raise click.BadParameter(f"{value!r} is not a number of seconds up to a day.")
    return seconds


def seconds(value: str) -> float:
    if not (found := pause(value)):
        raise click.BadParameter("0 seconds are too few.")
    return found


def url(value: str) -> str:
    try:
        return check_url(text(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


# Click shows the name of the function as the placeholder of an option.
TEXT: Final = FuncParamType(text)
HEADER_TEXT: Final = FuncParamType(header_text)
HEADER: Final = FuncParamType(header)
SETTING: Final = FuncParamType(setting)
BUCKET: Final = FuncParamType(bucket)
BUCKET_OR_EMPTY: Final = FuncParamType(bucket_or_empty)
SECONDS: Final = FuncParamType(seconds)
PAUSE: Final = FuncParamType(pause)
SERVER_URL: Final = FuncParamType(url)
# §5.2.1: the integers that a JavaScript number holds exactly.
EPOCH: Final = click.IntRange(0, 2**53 - 1)


data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="TAILRACE_DATA_DIR",
    required=True,
    metavar="DIR",
    show_envvar=True,
    help="The data directory.",
)


def count_option(*names: str, least: int = 1, help: str) -> Callable[[_Command], _Command]:
    """An option whose value is a number of things."""
    return click.option(*names, type=click.IntRange(min=least), metavar="N", help=help)


def is_url(path: str) -> bool:
    """Whether a PATH is a complete URL."""
    return path.lower().startswith(("http://", "https://"))


def check_url(value: str) -> str:
    """
    Return a URL to which requests can be sent.

    Raises:
        ValueError: The URL is invalid. The message does not repeat a password.
    """
    from tailrace.client.requests import server_url

    server_url(value)
    parts = urlsplit(value)
    try:
        # The encoding for DNS, which rejects empty and too long labels.
        (parts.hostname or "").encode("idna")
        valid = value.isprintable() and " " not in value and parts.path.isascii()
    except UnicodeError:
        valid = False
    if not valid:
        raise ValueError(f"{value!r} is not a valid URL, such as http://127.0.0.1:4437")
    return value


def command_line(command: str, arguments: Iterable[str], options: Iterable[str]) -> str:
    """A `tailrace` command as a shell accepts it, for hints."""
    values = list(arguments)
    if any(value.startswith("-") for value in values):
        words = [*options, "--", *values]
    else:
        words = [*values, *options]
    return f"tailrace {command} {shlex.join(words)}"
