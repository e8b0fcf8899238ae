"""Header names, the headers of every response, and conditional requests."""

import re
from typing import Final

__all__ = ["COMMON", "caching", "matches", "preflight", "vary"]

STREAM_NEXT_OFFSET: Final = b"Stream-Next-Offset"
STREAM_UP_TO_DATE: Final = b"Stream-Up-To-Date"
STREAM_CLOSED: Final = b"Stream-Closed"
STREAM_CURSOR: Final = b"Stream-Cursor"
STREAM_TTL: Final = b"Stream-TTL"
STREAM_EXPIRES_AT: Final = b"Stream-Expires-At"
STREAM_EARLIEST_OFFSET: Final = b"Stream-Earliest-Offset"
STREAM_SNAPSHOT_OFFSET: Final = b"Stream-Snapshot-Offset"
STREAM_SSE_DATA_ENCODING: Final = b"Stream-SSE-Data-Encoding"
PRODUCER_EPOCH: Final = b"Producer-Epoch"
PRODUCER_SEQ: Final = b"Producer-Seq"
PRODUCER_EXPECTED_SEQ: Final = b"Producer-Expected-Seq"
PRODUCER_RECEIVED_SEQ: Final = b"Producer-Received-Seq"
CACHE_CONTROL: Final = b"Cache-Control"
CONTENT_TYPE: Final = b"Content-Type"
ETAG: Final = b"ETag"
LOCATION: Final = b"Location"
WWW_AUTHENTICATE: Final = b"WWW-Authenticate"
TRUE: Final = b"true"
FALSE: Final = b"false"
NO_STORE: Final = (CACHE_CONTROL, b"no-store")
UNBUFFERED: Final = (b"X-Accel-Buffering", b"no")
"""nginx and others collect a response before they pass it on, unless it has this header."""
SANDBOX: Final = (b"Content-Security-Policy", b"sandbox")
"""§10.3: stored content has any type; a browser must not run it as a page of this origin."""

# What a script in a browser may read of a response.
_EXPOSED: Final = (
    STREAM_NEXT_OFFSET, STREAM_UP_TO_DATE, STREAM_CLOSED, STREAM_CURSOR, STREAM_TTL,
    STREAM_EXPIRES_AT, STREAM_EARLIEST_OFFSET, STREAM_SNAPSHOT_OFFSET,
    STREAM_SSE_DATA_ENCODING, PRODUCER_EPOCH, PRODUCER_SEQ, PRODUCER_EXPECTED_SEQ,
    PRODUCER_RECEIVED_SEQ, ETAG, LOCATION, b"Retry-After", WWW_AUTHENTICATE,
)  # fmt: skip
# What a script in a browser may send, beyond what every request may have.
_ALLOWED: Final = (
    b"Content-Type", b"Authorization", b"If-None-Match", b"Accept", b"Cache-Control",
    b"Last-Event-ID", STREAM_CLOSED, b"Stream-Seq", STREAM_TTL, STREAM_EXPIRES_AT, b"Producer-Id",
    PRODUCER_EPOCH, PRODUCER_SEQ, b"Stream-Forked-From", b"Stream-Fork-Offset",
    b"Stream-Fork-Sub-Offset",
)  # fmt: skip

COMMON: Final = [
    # §10.7: on every response, errors too.
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Cross-Origin-Resource-Policy", b"cross-origin"),
    (b"Access-Control-Allow-Origin", b"*"),
    (b"Access-Control-Expose-Headers", b", ".join(_EXPOSED)),
]

_PREFLIGHT: Final = [
    (b"Access-Control-Allow-Methods", b"GET, HEAD, PUT, POST, DELETE, OPTIONS"),
    (b"Access-Control-Max-Age", b"86400"),
    (b"Vary", b"Access-Control-Request-Headers"),
    NO_STORE,
]
_ASKED_BYTES_MAX: Final = 4096
_NAMES: Final = re.compile(
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*+"
)


def preflight(asked: bytes | None) -> list[tuple[bytes, bytes]]:
    """
    The headers of the response to OPTIONS.

    Allowed is whatever the browser asks for, since libraries and proxies add headers of their own;
    the list of the protocol's headers, if it asks for none, or not by a valid list of names.
    """
    allowed = asked
    if asked is None or len(asked) > _ASKED_BYTES_MAX or not _NAMES.fullmatch(asked):
        allowed = b", ".join(_ALLOWED)
    return [(b"Access-Control-Allow-Headers", allowed or b""), *_PREFLIGHT]


def caching(directive: bytes, *, shared: bool) -> tuple[bytes, bytes]:
    """Cache-Control; §10.2: with access control, shared caches must not store a response."""
    return CACHE_CONTROL, directive if shared else b"private, " + directive


def vary(*, shared: bool) -> tuple[bytes, bytes]:
    """Vary; with access control also by token, since one browser may use several."""
    return b"Vary", b"Accept-Encoding" if shared else b"Accept-Encoding, Authorization"


def matches(if_none_match: bytes | None, etag: bytes) -> bool:
    """Whether an If-None-Match header names this ETag (§8.1)."""
    if if_none_match is None:
        return False
    candidates = (item.strip().removeprefix(b"W/") for item in if_none_match.split(b","))
    return any(item in (etag, b"*") for item in candidates)
