"""
The target of a request: what its path names.

A path is percent-decoded once, must be UTF-8, and is refused if a segment is empty, `.` or `..`, or
if it holds NUL or, on the base surface, a backslash. The key of a stream is never a file name.

Streams of the base protocol are below `/v1/stream/`, below `/v1/streams/`, which some clients use,
and below the root that is configured: each stream is at all of them.

On the base surface, `__ds` and everything below it is reserved for subscriptions. In a bucket,
`/{bucket_id}/__ds` is a stream like others: stream ids have no slash, so that the subscriptions
below it take no name from it.
"""

from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from tailrace.protocol.errors import NameInvalid
from tailrace.protocol.limits import STREAM_NAME_BYTES_MAX
from tailrace.protocol.names import NO_BUCKET, STREAMS, bucket_key, bucketed_stream_key
from tailrace.server.errors import RouteNotFound
from tailrace.server.routing import routes
from tailrace.server.routing.routes import ROUTES, Route

__all__ = [
    "RESERVED_SEGMENT",
    "SHORT_BYTES_MAX",
    "STREAM_PREFIX",
    "UNRESOLVED",
    "Target",
    "base_key",
    "resolve",
    "resolve_short",
]

STREAM_PREFIX: Final = b"/v1/stream/"
_STREAM_ALIAS: Final = b"/v1/streams/"
RESERVED_SEGMENT: Final = "__ds"
"""The first segment of the paths of subscriptions."""
SHORT_BYTES_MAX: Final = 512
# First segments that are not buckets: a bucket id has at least four characters.
_NOT_BUCKETS: Final = ("v1", "")
_UI_PREFIX: Final = b"/-/ui/"
_BELOW_STREAM: Final = "/{bucket_id}/{stream_id}/"
_FIXED: Final = {
    route.path.encode(): route
    for route in ROUTES
    if route.path.startswith("/-/") and "{" not in route.path
}
# By the first segment below the stream, and the number of segments there.
_BELOW: Final = {
    (segments[0], len(segments)): route
    for route in ROUTES
    if route.path.startswith(_BELOW_STREAM)
    for segments in [route.path.removeprefix(_BELOW_STREAM).split("/")]
}
# Routes below `__ds` by their literal segments and the number of all; `None` stands for a name.
_BELOW_RESERVED: Final = {
    tuple(None if segment.startswith("{") else segment for segment in segments): route
    for route in ROUTES
    if route.subscriptions and route is not routes.RESERVED
    for segments in [route.path.partition(f"/{RESERVED_SEGMENT}/")[2].split("/")]
}


class Target(NamedTuple):
    """What a path names."""

    route: Route
    key: bytes = b""
    """The storage key of the stream, or of the bucket."""
    offset: str = ""
    """Of a snapshot, percent-decoded (X§5) and not yet parsed."""
    names: tuple[str, ...] = ()
    """Below `__ds`: the id of a subscription, and the path of a linked stream, percent-decoded."""


UNRESOLVED: Final = Target(routes.OWN)
"""The target of a request whose path has not been resolved, or cannot be."""


def resolve(path: bytes, root: bytes = STREAM_PREFIX) -> Target:
    """
    Find what a path names, from its bytes as sent; `root` is the configured one.

    Raises:
        NameInvalid, BucketInvalid: Nothing can have this name.
        RouteNotFound: No route has this path.
    """
    for alias in (root, _STREAM_ALIAS):
        if path.startswith(alias):
            path = STREAM_PREFIX + path[len(alias) :]
            break
    if path.startswith(STREAM_PREFIX):
        rest = path[len(STREAM_PREFIX) :]
        text = _decode(rest)
        if text.startswith(RESERVED_SEGMENT) and text[len(RESERVED_SEGMENT) :][:1] in ("", "/"):
            segments = [_decode(segment) for segment in rest.split(b"/")]
            return _reserved(segments, NO_BUCKET) or Target(routes.RESERVED, NO_BUCKET)
        return Target(routes.STREAM, base_key(text))
    if path == b"*":
        # `OPTIONS *`: the server as a whole.
        return Target(routes.OWN)
    segments = [_decode(segment) for segment in path[1:].split(b"/")]
    if segments[0] == "-":
        if path.startswith(_UI_PREFIX):
            return Target(routes.UI)
        return Target(_FIXED.get(path, routes.OWN))
    if segments[0] in _NOT_BUCKETS or path[:1] != b"/":
        raise RouteNotFound
    return _bucketed(segments)


resolve_short: Final = lru_cache(maxsize=16_384)(resolve)
"""Cached `resolve`, for paths of up to `SHORT_BYTES_MAX`: the cache is bounded in bytes, too."""


def _bucketed(segments: list[str]) -> Target:
    if len(segments) == 1:
        return Target(routes.BUCKET, bucket_key(segments[0]))
    bucket_id, stream_id, *rest = segments
    if stream_id == STREAMS and not rest:
        return Target(routes.LISTING, bucket_key(bucket_id))
    if stream_id == RESERVED_SEGMENT and (
        target := _reserved(segments[1:], bucket_key(bucket_id) + b"\0")
    ):
        return target
    key = bucketed_stream_key(bucket_id, stream_id)
    if not rest:
        return Target(routes.STREAM, key)
    route = _BELOW.get((rest[0], len(rest)))
    if route is not None:
        return Target(route, key, rest[1] if len(rest) > 1 else "")
    raise NameInvalid(
        "a stream id must not contain '/'; below a stream there are /snapshot, "
        "/snapshot/{offset} and /bootstrap (streams of any depth live under /v1/stream/)"
    )


def _reserved(segments: list[str], scope: bytes) -> Target | None:
    """The route below `__ds`, if there is one; `scope` is the prefix of the keys of its streams."""
    # subscriptions/{subscription_id}/streams/{stream_path}: its slashes should be percent-encoded,
    # and may have been decoded on the way.
    literals: list[str | None] = [*segments[1:4], *["/".join(segments[4:])][: len(segments) - 4]]
    names = []
    for index in (1, 3):
        if len(literals) > index:
            names.append(str(literals[index]))
            literals[index] = None
    route = _BELOW_RESERVED.get(tuple(literals))
    return None if route is None else Target(route, scope, names=tuple(names))


def base_key(text: str) -> bytes:
    """
    Return the storage key of a stream of the base protocol.

    Raises:
        NameInvalid: No stream can have this path.
    """
    name = text.encode()
    if b"\0" in name or b"\\" in name:
        raise NameInvalid("the path must not contain NUL or a backslash")
    for segment in name.split(b"/"):
        if segment in (b"", b".", b".."):
            raise NameInvalid("the path must not have an empty segment, '.' or '..'")
    if text.partition("/")[0] == RESERVED_SEGMENT:
        raise NameInvalid(f"paths at and below {RESERVED_SEGMENT} are reserved for subscriptions")
    if len(name) > STREAM_NAME_BYTES_MAX:
        raise NameInvalid(f"the path may have {STREAM_NAME_BYTES_MAX} bytes at most")
    return NO_BUCKET + name


_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


def _decode(path: bytes) -> str:
    """Percent-decode a path, or a segment of one."""
    if b"%" in path and any(
        len(rest) < 2 or not _HEX.issuperset(rest[:2]) for rest in path.split(b"%")[1:]
    ):
        raise NameInvalid("the path has a % that is not followed by two hexadecimal digits")
    if b"#" in path:
        raise NameInvalid("the path must not contain an unescaped '#'")
    try:
        return unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise NameInvalid("the path is not UTF-8 after percent-decoding") from None
