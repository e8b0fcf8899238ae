"""Which server, and what on it: the options and arguments that commands share."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import wraps
from typing import Any, Final
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from tailrace.cli.error_messages import Subject, explain
from tailrace.cli.failures import Failure, show
from tailrace.cli.parameters import BUCKET, SECONDS, TEXT, check_url, is_url
from tailrace.client import Bucket, Client, Refused, Retry, Stream, TailraceError

__all__ = [
    "DEFAULT_URL",
    "URL_VARIABLE",
    "Command",
    "Patience",
    "Server",
    "Target",
    "bucket_option",
    "check_headers",
    "check_server_url",
    "make_target",
    "server_options",
    "stream_argument",
]

DEFAULT_URL: Final = "http://127.0.0.1:4437"
URL_VARIABLE: Final = "TAILRACE_URL"
TOKEN_VARIABLE: Final = "TAILRACE_TOKEN"

_TIMEOUT_S: Final = 10.0
_OUR_HEADERS: Final = frozenset(("connection", "content-length", "host", "transfer-encoding"))


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
    ambient_token: bool = False
    """Whether the token in its headers is that of the environment, which nobody named with it."""

    def without_token(self) -> "Server":
        headers = {
            name: value for name, value in self.headers.items() if name.lower() != "authorization"
        }
        return replace(self, headers=headers, ambient_token=False)

    def client(self, patience: Patience = Patience.BRIEF) -> Client:
        attempts, longest_s = patience.value
        if self.retries is not None:
            attempts = self.retries + 1
        kind = _BriefRetry if patience is Patience.BRIEF else Retry
        retry = kind(attempts_max=attempts, longest_s=longest_s)
        return Client(self.url, headers=self.headers, retry=retry, timeout_s=self.timeout_s)

    def words(self, *, url: bool = True) -> list[str]:
        """What names it in a command, where it is not the default. Tokens are not repeated."""
        known = not url or self.url == os.environ.get(URL_VARIABLE, DEFAULT_URL)
        token = os.environ.get(TOKEN_VARIABLE)
        headers = [
            word
            for name, value in self.headers.items()
            if not token or value != f"Bearer {token}"
            for word in ("-H", f"{name}: …")
        ]
        return headers if known else ["--url", self.url, *headers]

    @contextmanager
    def bucket(self, bucket_id: str, missing: str | None = None) -> Iterator[Bucket]:
        """A bucket; errors come out as what to tell, with `missing` as a hint where it is not."""
        with self.client() as client:
            try:
                yield client.bucket(bucket_id)
            except TailraceError as error:
                subject = Subject(bucket_id, "", bucket_id, self.words(), missing)
                raise explain(error, subject) from error


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
    def stream(
        self, patience: Patience = Patience.BRIEF, missing: str | None = None
    ) -> Iterator[Stream]:
        """The stream; errors come out as what to tell, with `missing` as a hint where it is not."""
        with self.server.client(patience) as client:
            place = client.bucket(self.bucket) if self.bucket else client
            stream = place.stream(self.path)
            try:
                yield stream
            except Refused as error:
                raise self.explain(_with_reason(error, stream), missing) from error
            except TailraceError as error:
                raise self.explain(error, missing) from error

    def explain(self, error: TailraceError, missing: str | None = None) -> Failure:
        """What to tell about an error."""
        return explain(error, self._subject(missing))

    def spelled(self, command: str, *options: str) -> str:
        """A command about this stream, as it can be typed."""
        return self._subject().stream(command, *options)

    def _subject(self, missing: str | None = None) -> Subject:
        words = self.server.words(url=not is_url(self.path))
        return Subject(self.name, self.path, self.bucket, words, missing)


def _with_reason(error: Refused, stream: Stream) -> Refused:
    """An answer to HEAD has no body: ask once more in a way that can be told why."""
    if error.detail or error.status not in (400, 404):
        return error
    try:
        for _ in stream.read("now"):
            break
    except Refused as told:
        if told.status == error.status:
            return told
    except TailraceError:
        pass
    return error


Command = Callable[..., None]


def check_server_url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A server's URL."""
    if wrong := check_url(value):
        raise click.BadParameter(wrong, ctx, param)
    return value


def check_headers(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Headers by their names."""
    headers = {}
    for value in values:
        name, mark, text = value.partition(":")
        if not mark or not name.strip() or not value.isprintable() or not value.isascii():
            raise click.BadParameter(f"{value!r} is not of the form 'Name: value'", ctx, param)
        if name.strip().lower() in _OUR_HEADERS:
            raise click.BadParameter(f"{name.strip()} is not yours to set", ctx, param)
        headers[name.strip()] = text.strip()
    return headers


def _check_token(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value and not (value.isascii() and value.isprintable() and " " not in value):
        # Not repeated: it may be a token all the same.
        raise click.BadParameter("a token has no blanks and no special characters", ctx, param)
    return value


def server_options(command: Command) -> Command:
    """Options about the server; the command gets `server`."""

    @click.option(
        "--url",
        envvar=URL_VARIABLE,
        default=DEFAULT_URL,
        type=TEXT,
        callback=check_server_url,
        show_default=True,
        show_envvar=True,
        help="The server.",
    )
    @click.option(
        "--token",
        envvar=TOKEN_VARIABLE,
        show_envvar=True,
        callback=_check_token,
        metavar="TOKEN",
        help="Sent as Authorization: Bearer TOKEN.",
    )
    @click.option(
        "-H",
        "--header",
        "headers",
        multiple=True,
        callback=check_headers,
        metavar="'NAME: VALUE'",
        help="A header for every request; may be given several times.",
    )
    @click.option(
        "--timeout",
        type=SECONDS,
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
        token: str | None,
        headers: dict[str, str],
        timeout: float,
        retries: int | None,
        **kwargs: Any,
    ) -> None:
        ambient = False
        if token and not any(name.lower() == "authorization" for name in headers):
            headers = {**headers, "Authorization": f"Bearer {token}"}
            source = click.get_current_context().get_parameter_source("token")
            ambient = source is ParameterSource.ENVIRONMENT
        command(*args, server=Server(url, timeout, retries, headers, ambient), **kwargs)

    return run


def bucket_option(command: Command) -> Command:
    """The bucket of a stream; the command gets `bucket`, which may be empty."""
    option = click.option(
        "-b",
        "--bucket",
        default="",
        type=BUCKET,
        metavar="BUCKET",
        help="The bucket that the stream is in.",
    )
    return option(command)


def stream_argument(command: Command) -> Command:
    """PATH, its bucket and its server; the command gets `target`."""

    @click.argument("path", type=TEXT)
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
    if is_url(path):
        if bucket:
            raise click.UsageError("a whole URL names its bucket itself: leave out --bucket")
        if wrong := check_url(path, query=True):
            raise click.UsageError(f"PATH: {wrong}")
        scheme, mark, rest = path.partition("://")
        path = scheme.lower() + mark + rest
        if server.ambient_token and _origin(path) != _origin(server.url):
            server = _withhold(server, path)
    if not path.strip("/"):
        raise click.UsageError("PATH is empty")
    return Target(server, path, bucket)


def _withhold(server: Server, url: str) -> Server:
    """The token of the environment is the server's: a URL from elsewhere must not collect it."""
    place = urlsplit(url).netloc
    # Said once, however many paths there are.
    said = click.get_current_context().meta.setdefault(f"{__name__}.withheld", set())
    if place not in said:
        said.add(place)
        show(f"{TOKEN_VARIABLE} is for {server.url} and not sent to {place}: --token sends it")
    return server.without_token()


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port
