"""Checks of rejected requests: the problem document, the stream and the connection."""

from __future__ import annotations

from typing import Any

from tests.support.http import Response
from tests.support.streams import Api, check_problem

CONTENT = b"what was there"


def refused(
    api: Api,
    raw: bytes,
    status: int,
    code: str | None = None,
    *,
    path: str,
    closes: bool | None = None,
) -> dict[str, Any]:
    """
    Send raw bytes that must be rejected without effect; returns the problem document.

    `closes` is whether the server must close the connection. None allows both: after the response
    the connection is closed or accepts the next request, and never hangs.
    """
    before = api.facts(path)
    response = exchange(api, raw, path=path, closes=closes)
    problem = check_problem(response, status, code)
    assert api.facts(path) == before
    return problem


def exchange(api: Api, raw: bytes, *, path: str, closes: bool | None = None) -> Response:
    """Send raw bytes, read one response, and check that the connection is usable or closed."""
    with api.connect() as connection:
        connection.send(raw)
        response = connection.read_response()
        ends = response.headers.get("connection") == "close"
        if closes is not None:
            assert ends is closes
        if ends:
            assert connection.closed_by_peer()
        else:
            assert connection.request("GET", path).status == 200
    return response


def head(request_line: str, *lines: str, host: str | None = "x") -> bytes:
    """The head of a request with these lines; only Host is added."""
    hosts = [f"Host: {host}"] if host is not None else []
    return "\r\n".join([request_line, *hosts, *lines, "", ""]).encode("latin-1")


def post(path: str, *lines: str, body: bytes = b"") -> bytes:
    """A POST of plain text; these header lines are its only framing."""
    return head(f"POST {path} HTTP/1.1", "Content-Type: text/plain", *lines) + body
