"""Requests with what goes with every one of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from tailrace.client.flow import Call, Flow, Retry, Value

__all__ = [
    "Options",
    "Text",
    "bucket_url",
    "is_header_text",
    "make_call",
    "server_url",
    "stream_url",
]

Text: TypeAlias = str | Callable[[], Any]
"""A header or a parameter: a text, or something to call for it before each request."""


@dataclass(frozen=True, slots=True)
class Options:
    """What goes with every request."""

    headers: Mapping[str, Text] = field(default_factory=dict)
    params: Mapping[str, Text] = field(default_factory=dict)
    retry: Retry = field(default_factory=Retry)
    live_idle_s: float = 75.0
    """A live read on which nothing comes for this long, not even a heartbeat, is given up."""


def server_url(url: str) -> str:
    """
    Where a server is, without a slash at its end.

    Raises:
        ValueError: It is no such URL.
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError(f"{url!r} is no URL such as http://127.0.0.1:4437")
    if "@" in parts.netloc or parts.query or parts.fragment:
        # Not shown: it may hold a password.
        raise ValueError("a URL with a user, a query or a fragment; use headers and params")
    return url.rstrip("/")


def stream_url(server: str, path: str) -> str:
    """Where a stream of a server is; a path that is a whole URL says so itself."""
    if path.startswith(("http://", "https://")):
        return server_url(path)
    return f"{server}/v1/stream/{quote(path.lstrip('/'))}"


def bucket_url(server: str, bucket_id: str) -> str:
    """Where a bucket of a server is."""
    return f"{server}/{quote(bucket_id, safe='')}"


def is_header_text(value: str) -> bool:
    """Whether every library sends it, and in the same way."""
    return value.isascii() and value.isprintable() and value == value.strip() and value != ""


def make_call(
    options: Options,
    method: str,
    url: str,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    body: bytes = b"",
    safe: bool = True,
) -> Flow[Call]:
    """A request with a client's options, those that are asked for each time asked."""
    query = {**(yield from _texts(options.params)), **(params or {})}
    sent = {**(yield from _texts(options.headers)), **(headers or {})}
    for name, value in sent.items():
        # The two shells would send anything else differently.
        if value and not is_header_text(value):
            raise ValueError(f"the header {name} must be printable ASCII")
    # §8.1: in one order, so that caches know them for the same.
    target = f"{url}?{urlencode(sorted(query.items()))}" if query else url
    remake = partial(make_call, options, method, url, params, headers, body=body, safe=safe)
    return Call(method, target, sent, body, safe, remake=remake)


def _texts(values: Mapping[str, Text]) -> Flow[dict[str, str]]:
    found = {}
    for name, value in values.items():
        # Not in lower case: a parameter's name may have any.
        text = (yield Value(value)) if callable(value) else value
        if not isinstance(text, str):
            raise TypeError(f"{name} must be text, and is {type(text).__name__}")
        found[name] = text
    return found
