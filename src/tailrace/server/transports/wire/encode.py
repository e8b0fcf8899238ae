"""Encodes HTTP/1.1 responses."""

from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from tailrace.server.headers import COMMON
from tailrace.server.message import Response

__all__ = ["CONTINUE", "LAST_CHUNK", "encode_head", "tick"]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_COMMON: Final = b"".join(b"%b: %b\r\n" % item for item in COMMON)
# These have no body by definition, and must not have a Content-Length.
_BODILESS: Final = frozenset((204, 304))


class _CommonLines:
    """Header lines that all responses of one second share: the Date, and the constant ones."""

    lines = b""


def tick() -> None:
    """Update the Date header; called about once a second."""
    _CommonLines.lines = _COMMON + b"Date: %b\r\n" % formatdate(usegmt=True).encode()


def encode_head(
    response: Response, *, head: bool, close: bool, chunked: bool, http_1_0: bool = False
) -> bytes:
    """Status line and headers. `head`: the request was HEAD; `chunked`: the body is."""
    lines = [_STATUS_LINES[response.status], _CommonLines.lines]
    lines += [b"%b: %b\r\n" % item for item in response.headers]
    if response.length is not None:
        lines.append(b"Content-Length: %d\r\n" % response.length)
    elif response.live is not None:
        if chunked:
            lines.append(b"Transfer-Encoding: chunked\r\n")
    elif not head and response.status not in _BODILESS:
        lines.append(b"Content-Length: %d\r\n" % len(response.body))
    if close:
        lines.append(b"Connection: close\r\n")
    elif http_1_0:
        # A client of HTTP/1.0 that asked for it waits for the end of the connection otherwise.
        lines.append(b"Connection: keep-alive\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)
