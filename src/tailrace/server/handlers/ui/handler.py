"""
The files of the web UI: plain HTML, CSS and ES modules of this package.

Rule 1: all files are read at startup. A request's path is a dict key and never a file name, so that
path traversal is impossible.

Rule 2: nothing may run in the page that is not part of it (§10.3). The policy allows scripts,
styles, images and connections of this origin only: no inline script, no other host, no frame around
it, and no conversion of text to markup (Trusted Types).
"""

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.server import headers as h
from tailrace.server.errors import RouteNotFound
from tailrace.server.message import Request, Response

__all__ = ["POLICY", "UiHandler"]

_STATIC: Final = Path(__file__).parent / "static"
_ROOT: Final = b"/-/ui"
_INDEX: Final = b"index.html"
_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The Content-Security-Policy of the page."""

_HEADERS: Final = [
    (b"Content-Security-Policy", POLICY.encode()),
    (b"Referrer-Policy", b"no-referrer"),
    (b"X-Frame-Options", b"DENY"),
    # A new version of the server has a new page: revalidate.
    (h.CACHE_CONTROL, b"no-cache"),
]


class _File(NamedTuple):
    body: bytes
    etag: bytes
    headers: list[tuple[bytes, bytes]]


class UiHandler:
    """GET of the files of the web UI."""

    def __init__(self) -> None:
        self._files = {
            b"%b/%b" % (_ROOT, path.name.encode()): _load(path)
            for path in _STATIC.iterdir()
            if path.suffix in _TYPES
        }
        self._files[_ROOT + b"/"] = self._files[b"%b/%b" % (_ROOT, _INDEX)]

    def get(self, request: Request) -> Response:
        """Return one of the files."""
        if request.path == _ROOT:
            # Relative, so that it also holds in a mounted app.
            return Response(308, [(h.LOCATION, b"ui/"), *_HEADERS])
        file = self._files.get(request.path)
        if file is None:
            raise RouteNotFound
        if h.matches(request.headers.get(b"if-none-match"), file.etag):
            return Response(304, file.headers)
        return Response(200, file.headers, file.body)


def _load(path: Path) -> _File:
    body = path.read_bytes()
    etag = b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
    return _File(body, etag, [(h.CONTENT_TYPE, _TYPES[path.suffix]), (h.ETAG, etag), *_HEADERS])
