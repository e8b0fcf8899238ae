"""How requests are made: URLs, and the headers and parameters of a client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from tailrace.client.flow import (
    Evaluate,
    Flow,
    HttpRequest,
    HttpResponse,
    MakeRequest,
    Retry,
    fetch,
    whole,
)

__all__ = [
    "Options",
    "Resource",
    "Text",
    "base_url",
    "bucket_url",
    "is_header_text",
    "server_url",
    "sibling_url",
    "stream_url",
]

Text: TypeAlias = str | Callable[[], Any]
"""A header or a parameter: text, or a callable that returns it before each request."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a client, for every request."""

    headers: Mapping[str, Text] = field(default_factory=dict)
    params: Mapping[str, Text] = field(default_factory=dict)
    retry: Retry = field(default_factory=Retry)
    live_idle_s: float = 75.0
    """A live read that receives nothing for this long, not even a heartbeat, is reconnected."""


def server_url(url: str) -> str:
    """
    The checked URL of a server, without a trailing slash.

    Raises:
        ValueError: It is invalid. The message does not repeat a password.
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        shown = "this" if "@" in url else repr(url)
        raise ValueError(f"{shown} is not a URL such as http://127.0.0.1:4437")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("the URL has a user, a query or a fragment: use headers and params")
    return url.rstrip("/")


def stream_url(server: str, path: str) -> str:
    """The URL of a stream by its path, which may itself be a whole URL."""
    if path.startswith(("http://", "https://")):
        return server_url(path)
    return f"{server}/v1/stream/{quote(path.lstrip('/'))}"


def sibling_url(url: str, name: str) -> str:
    """The URL of another stream beside one: under `/v1/stream/`, or in the same bucket."""
    if name.startswith(("http://", "https://")):
        return server_url(name)
    server, base, _ = url.partition("/v1/stream/")
    if base:
        return stream_url(server, name)
    return f"{url.rpartition('/')[0]}/{quote(name, safe='')}"


def base_url(server: str) -> str:
    """The URL that the paths of streams without a bucket are below."""
    return f"{server}/v1/stream"


def bucket_url(server: str, bucket_id: str) -> str:
    """The URL of a bucket."""
    return f"{server}/{quote(bucket_id, safe='')}"


def is_header_text(value: str) -> bool:
    """Whether every HTTP library sends this value unchanged."""
    return value.isascii() and value.isprintable() and value == value.strip() and value != ""


class Resource:
    """Something at a URL of a server; the base of all flows."""

    def __init__(self, url: str, options: Options) -> None:
        self.url = url
        self.options = options

    def _request(
        self,
        method: str,
        path: str = "",
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        body: bytes = b"",
        safe: bool = True,
    ) -> MakeRequest:
        """A request to a path below this URL, with the headers and parameters of the client."""

        def make() -> Flow[HttpRequest]:
            query = {**(yield from _texts(self.options.params)), **(params or {})}
            common = yield from _texts(self.options.headers)
            own = headers or {}
            # A header of the operation replaces that of the client, however that is spelled.
            sent = {name: text for name, text in common.items() if name.lower() not in own} | {
                **own
            }
            for name, value in sent.items():
                # The two drivers would send other values differently.
                if value and not is_header_text(value):
                    raise ValueError(f"the header {name} must be printable ASCII")
            # §8.1: in one order, so that caches recognize equal requests.
            target = self.url + path + (f"?{urlencode(sorted(query.items()))}" if query else "")
            return HttpRequest(method, target, sent, body, safe, self.options.retry)

        return make

    def _fetch(self, make: MakeRequest, *statuses: int) -> Flow[tuple[HttpResponse, bytes]]:
        """A response with its body; the request must be safe."""
        return fetch(make, self.options.retry, whole, *statuses)


def _texts(values: Mapping[str, Text]) -> Flow[dict[str, str]]:
    """Headers or parameters, after calling their callables."""
    found = {}
    for name, value in values.items():
        text = (yield Evaluate(value)) if callable(value) else value
        if not isinstance(text, str):
            raise TypeError(f"{name} must be text, not {type(text).__name__}")
        found[name] = text
    return found
