"""Requests with what goes with every one of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlencode

from tailrace.client.flow import Call, Flow, Retry, Value

__all__ = ["Options", "Text", "make_call"]

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
    return Call(method, f"{url}?{urlencode(query)}" if query else url, sent, body, safe)


def _texts(values: Mapping[str, Text]) -> Flow[dict[str, str]]:
    found = {}
    for name, value in values.items():
        # Not in lower case: a parameter's name may have any.
        found[name] = (yield Value(value)) if callable(value) else value
    return found
