"""Servers, and the streams and buckets on them: the options and arguments that commands share."""

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

from tailrace.cli.error_messages import failure_for
from tailrace.cli.failures import print_error
from tailrace.cli.parameters import (
    BUCKET_OR_EMPTY,
    HEADER,
    SECONDS,
    SERVER_URL,
    TEXT,
    check_url,
    command_line,
    count_option,
    is_url,
)
from tailrace.client import Bucket, Client, Refused, Retry, Stream, TailraceError

__all__ = [
    "Command",
    "Location",
    "Patience",
    "Server",
    "bucket_option",
    "make_location",
    "server_options",
    "stream_argument",
]

DEFAULT_URL: Final = "http://127.0.0.1:4437"
URL_VARIABLE: Final = "TAILRACE_URL"
TOKEN_VARIABLE: Final = "TAILRACE_TOKEN"

_TIMEOUT_S: Final = 10.0

Command = Callable[..., None]


class Patience(Enum):
    """How long a command retries."""

    BRIEF = Retry(5, longest_s=1.0, retry_after_s_max=1.0)
    """Two seconds: a person is waiting."""
    STEADY = Retry(12)
    """A minute: a transfer survives a restart of the server."""
    ENDLESS = Retry(1000)
    """Hours: `tail -f`."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server, and how to connect to it."""

    url: str
    timeout_s: float
    retries: int | None
    headers: dict[str, str]
    token_from_environment: bool = False

    def client(self, patience: Patience = Patience.BRIEF) -> Client:
        retry = patience.value
        if self.retries is not None:
            retry = replace(retry, attempts_max=self.retries + 1)
        return Client(self.url, headers=self.headers, retry=retry, timeout_s=self.timeout_s)

    def options(self, *, url: bool = True) -> list[str]:
        """The options that select this server in a command. Values of headers are omitted."""
        is_default = not url or self.url == os.environ.get(URL_VARIABLE, DEFAULT_URL)
        token = os.environ.get(TOKEN_VARIABLE)
        headers = [
            word
            for name, value in self.headers.items()
            if not token or value != f"Bearer {token}"
            for word in ("-H", f"{name}: …")
        ]
        return headers if is_default else ["--url", self.url, *headers]

    @contextmanager
    def bucket(self, bucket_id: str, missing: str | None = None) -> Iterator[Bucket]:
        """A bucket. Errors of the client become a `Failure`; `missing` is for `failure_for`."""
        with self.client() as client:
            try:
                yield client.bucket(bucket_id)
            except TailraceError as error:
                raise failure_for(error, Location(self, "", bucket_id), missing) from error


@dataclass(frozen=True, slots=True)
class Location:
    """A stream on a server; a bucket if the path is empty; the server if both are."""

    server: Server
    path: str = ""
    bucket: str = ""

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.bucket, self.path))) or self.server.url

    @contextmanager
    def stream(
        self, patience: Patience = Patience.BRIEF, missing: str | None = None
    ) -> Iterator[Stream]:
        """The stream. Errors of the client become a `Failure`; `missing` is for `failure_for`."""
        with self.server.client(patience) as client:
            parent = client.bucket(self.bucket) if self.bucket else client
            stream = parent.stream(self.path)
            try:
                yield stream
            except Refused as error:
                raise failure_for(_with_detail(error, stream), self, missing) from error
            except TailraceError as error:
                raise failure_for(error, self, missing) from error

    def command(self, command: str, *options: str, file: str = "") -> str:
        """A command line about this stream."""
        bucket = ["-b", self.bucket] if self.bucket else []
        arguments = [self.path, file] if file else [self.path]
        server = self.server.options(url=not is_url(self.path))
        return command_line(command, arguments, [*bucket, *options, *server])

    def bucket_command(self, command: str) -> str:
        """A command line about the bucket."""
        return command_line(command, [self.bucket], self.server.options())


def _with_detail(error: Refused, stream: Stream) -> Refused:
    """A response to HEAD has no body: for the reason, repeat the request with GET."""
    if error.detail or error.status not in (400, 404, 410):
        return error
    try:
        for _ in stream.read("now"):
            break
    except Refused as detailed:
        if detailed.status == error.status:
            return detailed
    except TailraceError:
        pass
    return error


def _check_token(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value and not (value.isascii() and value.isprintable() and " " not in value):
        # The message does not repeat the value, which may be a secret.
        raise click.BadParameter("a token has no spaces and no special characters", ctx, param)
    return value


def server_options(command: Command) -> Command:
    """Options for the connection to a server; the command gets `server`."""

    @click.option(
        "--url",
        envvar=URL_VARIABLE,
        default=DEFAULT_URL,
        type=SERVER_URL,
        show_default=True,
        show_envvar=True,
        help="URL of the server.",
    )
    @click.option(
        "--token",
        envvar=TOKEN_VARIABLE,
        show_envvar=True,
        callback=_check_token,
        metavar="TOKEN",
        help="Send Authorization: Bearer TOKEN.",
    )
    @click.option(
        "-H",
        "--header",
        "headers",
        multiple=True,
        type=HEADER,
        metavar="'NAME: VALUE'",
        help="Send this header with every request. Repeatable.",
    )
    @click.option(
        "--timeout",
        type=SECONDS,
        default=_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for data from the server.",
    )
    @count_option(
        "--retries",
        least=0,
        help="Number of retries.  [default: for seconds or a minute; tail -f: for hours]",
    )
    @wraps(command)
    def run(
        *args: Any,
        url: str,
        token: str | None,
        headers: tuple[tuple[str, str], ...],
        timeout: float,
        retries: int | None,
        **kwargs: Any,
    ) -> None:
        sent = dict(headers)
        from_environment = False
        if token and not any(name.lower() == "authorization" for name in sent):
            sent["Authorization"] = f"Bearer {token}"
            source = click.get_current_context().get_parameter_source("token")
            from_environment = source is ParameterSource.ENVIRONMENT
        command(*args, server=Server(url, timeout, retries, sent, from_environment), **kwargs)

    return run


bucket_option = click.option(
    "-b",
    "--bucket",
    default="",
    type=BUCKET_OR_EMPTY,
    metavar="BUCKET",
    help="The bucket of the stream.",
)


def stream_argument(command: Command) -> Command:
    """PATH, its bucket and its server; the command gets `location`."""

    @click.argument("path", type=TEXT)
    @bucket_option
    @server_options
    @wraps(command)
    def run(*args: Any, path: str, bucket: str, server: Server, **kwargs: Any) -> None:
        command(*args, location=make_location(server, path, bucket), **kwargs)

    return run


def make_location(server: Server, path: str, bucket: str) -> Location:
    """The stream that PATH and --bucket name; a usage error if they name none."""
    if is_url(path):
        if bucket:
            raise click.UsageError("PATH is a URL and includes its bucket: omit --bucket")
        scheme, separator, rest = path.partition("://")
        try:
            path = check_url(scheme.lower() + separator + rest)
        except ValueError as error:
            raise click.UsageError(f"PATH: {error}") from None
        if server.token_from_environment and _origin(path) != _origin(server.url):
            server = _withhold_token(server, path)
    if not path.strip("/"):
        raise click.UsageError("PATH is empty")
    return Location(server, path, bucket)


def _withhold_token(server: Server, url: str) -> Server:
    """Do not send the environment's token to another server than the one at --url."""
    host = urlsplit(url).netloc
    # One notice for each host, however many paths there are.
    noticed = click.get_current_context().meta.setdefault(f"{__name__}.withheld", set())
    if host not in noticed:
        noticed.add(host)
        print_error(f"{TOKEN_VARIABLE} is for {server.url} and not sent to {host}: use --token")
    headers = {name: text for name, text in server.headers.items() if name != "Authorization"}
    return replace(server, headers=headers, token_from_environment=False)


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port
