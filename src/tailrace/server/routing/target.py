"""
What a request's path and query name.

A path is percent-decoded once, must be UTF-8, and is refused if a segment is empty, `.` or `..`, or
if it holds NUL or, on the base surface, a backslash. The key of a stream never touches a file name.

    /v1/stream/{path}                          a stream of the base protocol
    /{bucket_id}                               a bucket (X§1)
    /{bucket_id}/streams                       its listing
    /{bucket_id}/{stream_id}                   a stream in it
    /{bucket_id}/{stream_id}/snapshot          its latest snapshot (X§2)
    /{bucket_id}/{stream_id}/snapshot/{offset}
    /{bucket_id}/{stream_id}/bootstrap         both, and what came after (X§3)
    /-/offsets, /-/rows                        places and messages of many streams
    /-/buckets, /-/paths, /-/about             what there is
    /-/metrics, /-/backup                      for operators
    /-/ui/…                                    a page to look at
    /-/…                                       what is ours and not the protocol's
"""

from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from tailrace.protocol.errors import NameInvalid, QueryInvalid
from tailrace.protocol.limits import STREAM_NAME_BYTES_MAX
from tailrace.protocol.names import NO_BUCKET, STREAMS, bucket_key, bucketed_stream_key
from tailrace.server.errors import RouteNotFound

__all__ = [
    "LISTING_QUERY",
    "READ_QUERY",
    "SHORT_BYTES_MAX",
    "STREAM_PREFIX",
    "Resource",
    "Target",
    "base_key",
    "parse_query",
    "resolve",
    "resolve_short",
]

STREAM_PREFIX: Final = b"/v1/stream/"
# First segments that are not buckets: an id has four characters at least.
_NOT_BUCKETS: Final = ("v1", "")
SHORT_BYTES_MAX: Final = 512
_QUERY_FIELDS_MAX: Final = 64

READ_QUERY: Final = ("offset", "until", "live", "cursor")
"""The parameters of a read."""
LISTING_QUERY: Final = ("prefix", "after", "limit", "changed_since")
"""The parameters of the listing of a bucket."""


class Resource(Enum):
    """What a path can name."""

    STREAM = "stream"
    BUCKET = "bucket"
    LISTING = "listing"
    LATEST = "latest snapshot"
    SNAPSHOT = "snapshot"
    BOOTSTRAP = "bootstrap"
    OFFSETS = "offsets"
    ROWS = "rows"
    BUCKETS = "buckets"
    PATHS = "paths"
    ABOUT = "about"
    METRICS = "metrics"
    BACKUP = "backup"
    UI = "ui"
    OWN = "own"


_OURS: Final = {
    b"/-/offsets": Resource.OFFSETS,
    b"/-/rows": Resource.ROWS,
    b"/-/buckets": Resource.BUCKETS,
    b"/-/paths": Resource.PATHS,
    b"/-/about": Resource.ABOUT,
    b"/-/metrics": Resource.METRICS,
    b"/-/backup": Resource.BACKUP,
    b"/-/ui": Resource.UI,
}
_UI: Final = b"/-/ui/"


class Target(NamedTuple):
    """What a path names."""

    resource: Resource
    key: bytes = b""
    """The storage key of the stream, or of the bucket."""
    offset: str = ""
    """Of a snapshot, percent-decoded (X§5) and not looked at."""


def resolve(path: bytes) -> Target:
    """
    Find what a path names, from its bytes as sent.

    Raises:
        NameInvalid, BucketInvalid: Nothing can be called this.
        RouteNotFound: Nothing is there.
    """
    if path.startswith(STREAM_PREFIX):
        return Target(Resource.STREAM, base_key(_decode(path[len(STREAM_PREFIX) :])))
    if path == b"*":
        # `OPTIONS *`: the server as a whole.
        return Target(Resource.OWN)
    segments = [_decode(segment) for segment in path[1:].split(b"/")]
    if segments[0] == "-":
        return Target(Resource.UI if path.startswith(_UI) else _OURS.get(path, Resource.OWN))
    if segments[0] in _NOT_BUCKETS or path[:1] != b"/":
        raise RouteNotFound
    return _bucketed(segments)


resolve_short: Final = lru_cache(maxsize=16_384)(resolve)
"""The same for a path of up to `SHORT_BYTES_MAX`, remembered: clients can make up long ones."""


def _bucketed(segments: list[str]) -> Target:
    if len(segments) == 1:
        return Target(Resource.BUCKET, bucket_key(segments[0]))
    bucket_id, stream_id, *rest = segments
    if stream_id == STREAMS and not rest:
        return Target(Resource.LISTING, bucket_key(bucket_id))
    key = bucketed_stream_key(bucket_id, stream_id)
    match rest:
        case []:
            return Target(Resource.STREAM, key)
        case ["snapshot"]:
            return Target(Resource.LATEST, key)
        case ["snapshot", offset]:
            return Target(Resource.SNAPSHOT, key, offset)
        case ["bootstrap"]:
            return Target(Resource.BOOTSTRAP, key)
    raise NameInvalid(
        "a stream id must not contain '/'; below a stream there are /snapshot, "
        "/snapshot/{offset} and /bootstrap (streams of any depth live under /v1/stream/)"
    )


def base_key(text: str) -> bytes:
    """
    The key of a stream of the base protocol, by its path.

    Raises:
        NameInvalid: No stream can be called this.
    """
    name = text.encode()
    if b"\0" in name or b"\\" in name:
        raise NameInvalid("the path must not contain NUL or a backslash")
    for segment in name.split(b"/"):
        if segment in (b"", b".", b".."):
            raise NameInvalid("the path must not have an empty segment, '.' or '..'")
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


def parse_query(query: bytes, known: tuple[str, ...]) -> dict[str, str]:
    """
    The parameters that an operation knows; others are ignored (§9.1).

    Raises:
        QueryInvalid: A known parameter is repeated, or the query has too many or is not UTF-8.
    """
    found: dict[str, str] = {}
    if not query:
        return found
    fields = query.split(b"&")
    if len(fields) > _QUERY_FIELDS_MAX:
        raise QueryInvalid("query", f"may have {_QUERY_FIELDS_MAX} parameters at most")
    for field in fields:
        name, _, value = field.partition(b"=")
        decoded = unquote(name.decode("latin-1"), errors="replace")
        if decoded not in known:
            continue
        if decoded in found:
            raise QueryInvalid(decoded, "must be given once")
        try:
            text = value.replace(b"+", b" ").decode("ascii")
            found[decoded] = unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise QueryInvalid(decoded, "is not UTF-8 after percent-decoding") from None
    return found
