"""
Grants: operations, and the keys that they are granted on.

Rule 1: a grant is the text `operations:location`. Operations are separated by commas; `*` is all.

Rule 2: a location is written as in a URL, and parsed by the code that parses the path of a request
(`target.resolve`). So every spelling of a name means the same in both.

    /                          everything, including routes below /-/
    /chat-rooms                a bucket and everything in it
    /chat-rooms/user-42        one stream of it, with its snapshots and its bootstrap
    /chat-rooms/*              all its streams, but not the bucket itself
    /chat-rooms/user-*         its streams whose ids start with this
    /logs-*                    buckets whose ids start with this, and everything in them
    /v1/stream                 all streams of the base protocol
    /v1/stream/team-a          that stream and everything below it: whole segments, not team-ab
    /v1/stream/team-*          paths that start with this, also team-ab/c
    /-/metrics                 a route of the server

Rule 3: a location is compiled once, to a storage key, a prefix of keys, or both. Keys are
`bucket NUL stream` and `NUL path`, and neither part can contain NUL. So a prefix that ends in NUL
or `/` cannot match another bucket or segment.

An invalid location is an error. A grant that silently matched nothing would be noticed late, by the
client that needs it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tailrace.exceptions import ExitCode, TailraceError
from tailrace.protocol.errors import Refusal
from tailrace.protocol.names import NO_BUCKET, RESERVED
from tailrace.server.routing import routes
from tailrace.server.routing.routes import Operation
from tailrace.server.routing.target import STREAM_PREFIX, resolve

__all__ = ["Grant", "GrantInvalid", "Operation", "parse_grant", "parse_grants"]


class GrantInvalid(TailraceError, ValueError):
    """The text is not a grant."""

    message = "{reason}"
    exit_code = ExitCode.USAGE
    hint = "tailrace token new --help"
    reason: str


_ALL: Final = "*"
_BUCKETS: Final = re.compile(rb"/[a-z0-9_-]{1,64}")
_SERVER_ROUTE: Final = re.compile(rb"/-/[a-z0-9-]{1,32}")
_GRANT_CHARS_MAX: Final = 8192
# Appended to a prefix to check that a name with this prefix can exist.
_SAMPLE: Final = b"x"


@dataclass(frozen=True, slots=True)
class Grant:
    """Operations, and the keys that they are granted on."""

    text: str
    operations: frozenset[Operation]
    key: bytes | None
    prefix: bytes | None


def parse_grant(text: str) -> Grant:
    """
    Parse a grant.

    Raises:
        GrantInvalid: The text is not a grant.
    """
    if len(text) > _GRANT_CHARS_MAX:
        raise GrantInvalid(f"a grant may have at most {_GRANT_CHARS_MAX} characters")
    operations, colon, location = text.partition(":")
    if not colon:
        raise GrantInvalid(
            f"{text!r} is not of the form operations:location, as in read:/chat-rooms"
        )
    key, prefix = _parse_location(location)
    return Grant(text, _operations(operations), key, prefix)


def parse_grants(texts: Iterable[str]) -> tuple[Grant, ...]:
    """
    Parse several grants.

    Raises:
        GrantInvalid: One of them is not a grant.
    """
    return tuple(map(parse_grant, texts))


def _operations(text: str) -> frozenset[Operation]:
    if text == _ALL:
        return frozenset(Operation)
    try:
        return frozenset(Operation(name) for name in text.split(","))
    except ValueError:
        known = ", ".join(Operation)
        raise GrantInvalid(
            f"{text!r} is not a list of operations: use some of {known}, or *"
        ) from None


def _parse_location(text: str) -> tuple[bytes | None, bytes | None]:
    """The key of a location, and the prefix of the keys below it."""
    try:
        location = text.encode()
    except UnicodeEncodeError:
        raise GrantInvalid(f"{text!r} is not UTF-8") from None
    if not location.startswith(b"/"):
        raise GrantInvalid(f"{text!r} is not a location: it must start with /")
    if b"?" in location or b"*" in location[:-1]:
        raise GrantInvalid(
            f"{text!r} is not a location: * is only allowed as its last character, and ? nowhere; "
            "write %2A and %3F if they are part of a name"
        )
    try:
        return _prefix(location[:-1]) if location.endswith(b"*") else _segments(location)
    except Refusal as refusal:
        raise GrantInvalid(f"{text!r} is not a location: {refusal.detail}") from None


def _segments(location: bytes) -> tuple[bytes | None, bytes | None]:
    """A location without `*`: whole segments."""
    if location == b"/":
        return None, b""
    if location in (b"/v1/stream", STREAM_PREFIX):
        return None, NO_BUCKET
    if location in (b"/-", b"/-/"):
        return None, b"/-/"
    if location.startswith(b"/-/"):
        if not _SERVER_ROUTE.fullmatch(location):
            raise GrantInvalid(f"{location.decode()!r} is not a route of the server")
        return location, None
    target = resolve(location)
    if target.route is routes.BUCKET:
        return target.key, target.key + b"\0"
    if target.route is routes.LISTING:
        raise GrantInvalid(f"{RESERVED}: grant read on the bucket, or on a prefix of stream ids")
    if target.route.subscriptions:
        raise GrantInvalid(
            f"{location.decode()!r} is reserved: grant subscribe on the streams of a subscription"
        )
    if target.route is not routes.STREAM:
        raise GrantInvalid(
            f"{location.decode()!r} is below a stream: a grant on the stream includes its "
            "snapshots and its bootstrap"
        )
    # Only streams of the base protocol have others below them.
    return target.key, target.key + b"/" if target.key.startswith(NO_BUCKET) else None


def _prefix(location: bytes) -> tuple[None, bytes]:
    """A location that ends in `*`, which is removed."""
    if location == b"/":
        raise GrantInvalid("'/*' is not a location: / alone is everything")
    if _BUCKETS.fullmatch(location):
        return None, location[1:]
    if location == b"/-/":
        return None, location
    target = resolve(location + _SAMPLE)
    if target.route is not routes.STREAM:
        raise GrantInvalid(f"{location.decode() + _ALL!r} is not a prefix of stream names")
    return None, target.key.removesuffix(_SAMPLE)
