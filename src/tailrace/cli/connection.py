"""Which server, and what on it: the options and arguments that commands share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any, Final
from urllib.parse import urlsplit

import click

from tailrace.cli.explain import explain
from tailrace.cli.failures import Failure
from tailrace.client import Bucket, Client, Retry, Stream, TailraceError

__all__ = [
    "DEFAULT_URL",
    "URL_VARIABLE",
    "Command",
    "Patience",
    "Server",
    "Target",
    "bucket_option",
    "make_target",
    "server_options",
    "stream_argument",
]

DEFAULT_URL: Final = "http://127.0.0.1:4437"
URL_VARIABLE: Final = "TAILRACE_URL"

_TIMEOUT_S: Final = 10.0


class Patience(Enum):
    """For how long a command waits for a server that is away: attempts, and the longest pause."""

    BRIEF = (5, 1.0)
    """Two seconds: somebody waits."""
    STEADY = (12, 10.0)
    """A minute: a restart must not end what is half done."""
    ENDLESS = (1000, 10.0)
    """Hours: it is there to follow."""


class _BriefRetry(Retry):
    """For commands: somebody waits for them, whatever `Retry-After` says."""

    def pause_s(self, attempt: int, headers: Any = None) -> float:
        return min(Retry.pause_s(self, attempt, headers), self.longest_s)


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and how to speak to it."""

    url: str
    timeout_s: float
    retries: int | None
    headers: dict[str, str]

    def client(self, patience: Patience = Patience.BRIEF) -> Client:
        attempts, longest_s = patience.value
        if self.retries is not None:
            attempts = self.retries + 1
        kind = _BriefRetry if patience is Patience.BRIEF else Retry
        retry = kind(attempts_max=attempts, longest_s=longest_s)
        return Client(self.url, headers=self.headers, retry=retry, timeout_s=self.timeout_s)

    @contextmanager
    def bucket(self, bucket_id: str) -> Iterator[Bucket]:
        """A bucket; errors come out as what to tell."""
        with self.client() as client:
            try:
                yield client.bucket(bucket_id)
            except TailraceError as error:
                raise explain(error, bucket_id, bucket=bucket_id) from error


@dataclass(frozen=True, slots=True)
class Target:
    """A stream, as the command line names it."""

    server: Server
    path: str
    bucket: str

    @property
    def name(self) -> str:
        return f"{self.bucket}/{self.path}" if self.bucket else self.path

    @contextmanager
    def stream(self, patience: Patience = Patience.BRIEF) -> Iterator[Stream]:
        """The stream; errors come out as what to tell."""
        with self.server.client(patience) as client:
            try:
                place = client.bucket(self.bucket) if self.bucket else client
                yield place.stream(self.path)
            except TailraceError as error:
                raise self.explain(error) from error

    def explain(self, error: TailraceError) -> Failure:
        """What to tell about an error."""
        return explain(error, self.name, self.path, self.bucket)


Command = Callable[..., None]


def _check_url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise click.BadParameter(f"{value!r} is no URL such as {DEFAULT_URL}", ctx, param)
    return value


def _check_headers(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    headers = {}
    for value in values:
        name, mark, text = value.partition(":")
        if not mark or not name.strip() or not value.isprintable() or not value.isascii():
            raise click.BadParameter(f"{value!r} is not of the form 'Name: value'", ctx, param)
        headers[name.strip()] = text.strip()
    return headers


def server_options(command: Command) -> Command:
    """Options about the server; the command gets `server`."""

    @click.option(
        "--url",
        envvar=URL_VARIABLE,
        default=DEFAULT_URL,
        callback=_check_url,
        show_default=True,
        show_envvar=True,
        help="The server.",
    )
    @click.option(
        "-H",
        "--header",
        "headers",
        multiple=True,
        callback=_check_headers,
        metavar="'NAME: VALUE'",
        help="A header for every request; may be given several times.",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long the server may say nothing.",
    )
    @click.option(
        "--retries",
        type=click.IntRange(min=0),
        metavar="N",
        help="How often to try again.  [default: for seconds or a minute; tail -f: for hours]",
    )
    @wraps(command)
    def run(
        *args: Any,
        url: str,
        headers: dict[str, str],
        timeout: float,
        retries: int | None,
        **kwargs: Any,
    ) -> None:
        command(*args, server=Server(url, timeout, retries, headers), **kwargs)

    return run


def bucket_option(command: Command) -> Command:
    """The bucket of a stream; the command gets `bucket`, which may be empty."""
    option = click.option(
        "-b", "--bucket", default="", metavar="BUCKET", help="The bucket that the stream is in."
    )
    return option(command)


def stream_argument(command: Command) -> Command:
    """PATH, its bucket and its server; the command gets `target`."""

    @click.argument("path")
    @bucket_option
    @server_options
    @wraps(command)
    def run(*args: Any, path: str, bucket: str, server: Server, **kwargs: Any) -> None:
        command(*args, target=make_target(server, path, bucket), **kwargs)

    return run


def make_target(server: Server, path: str, bucket: str) -> Target:
    """
    A stream by its words on the command line.

    Raises:
        UsageError: They do not name one.
    """
    if path.startswith(("http://", "https://")):
        if bucket:
            raise click.UsageError("a whole URL names its bucket itself: leave out --bucket")
        _check_whole_url(path)
    if not path.strip("/"):
        raise click.UsageError("PATH is empty")
    return Target(server, path, bucket)


def _check_whole_url(url: str) -> None:
    ctx = click.get_current_context()
    param = next(item for item in ctx.command.params if item.name in ("path", "paths"))
    _check_url(ctx, param, url)
