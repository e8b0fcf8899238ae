"""Words of the command line: which can be meant, and how they are typed."""

import math
import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

__all__ = [
    "BUCKET",
    "EPOCH",
    "HEADER_TEXT",
    "PAUSE",
    "SECONDS",
    "TEXT",
    "check_url",
    "is_url",
    "spell",
]

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    # Not generic in every release of click.
    _ParamType = click.ParamType

_SECONDS_MAX: Final = 86_400.0
# X§1.1
_BUCKET_ID: Final = re.compile(r"[a-z0-9_-]{4,64}", re.ASCII)
_URL: Final = "http://127.0.0.1:4437"


class _Text(_ParamType):
    """Text. Bytes that are not UTF-8 come as surrogates, which cannot be sent."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!r} is not UTF-8.", param, ctx)
        return text


class _HeaderText(_Text):
    """Text that goes into a header."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        if not text.strip() or not text.isascii() or not text.isprintable():
            self.fail(f"{text!r} is not printable ASCII text.", param, ctx)
        return text


class _BucketId(_Text):
    """The name of a bucket."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        # Empty is "none" where it is an option.
        if (text or isinstance(param, click.Argument)) and not _BUCKET_ID.fullmatch(text):
            self.fail(f"{text!r} is not 4 to 64 of a-z, 0-9, _ and -.", param, ctx)
        return text


class _Seconds(_ParamType):
    """A time that can be waited."""

    name = "seconds"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= _SECONDS_MAX or (not seconds and not self._zero):
            self.fail(f"{value!r} is not a number of seconds up to a day.", param, ctx)
        return seconds


TEXT: Final = _Text()
HEADER_TEXT: Final = _HeaderText()
BUCKET: Final = _BucketId()
SECONDS: Final = _Seconds()
PAUSE: Final = _Seconds(zero=True)
# §5.2.1: what a JavaScript number holds exactly.
EPOCH: Final = click.IntRange(0, 2**53 - 1)


def is_url(path: str) -> bool:
    """Whether it is a whole URL, and not a path."""
    return path.lower().startswith(("http://", "https://"))


def check_url(value: str, *, query: bool = False) -> str:
    """
    What is wrong with a URL; nothing, if it is good.

    What might hold a password is not repeated.
    """
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
        # As a name is looked up; it refuses empty and overlong labels.
        host.encode("idna")
        good = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:
        return "no URL" if "@" in value else f"{value!r} is no URL such as {_URL}"
    if "@" in parts.netloc:
        return "a URL with a user or a password is not taken: send a header, -H 'Authorization: …'"
    if parts.fragment or (parts.query and not query):
        return f"{value!r} has a query or a fragment, which a server's URL has not"
    whole = value.isprintable() and not any(map(str.isspace, value))
    if not good or not whole or not (parts.path + parts.query).isascii():
        return f"{value!r} is no URL such as {_URL}"
    return ""


def spell(command: str, arguments: Iterable[str], options: Iterable[str]) -> str:
    """A command of ours as it can be typed."""
    named = list(arguments)
    if any(word.startswith("-") for word in named):
        words = [*options, "--", *named]
    else:
        words = [*named, *options]
    return f"tailrace {command} {shlex.join(words)}"
