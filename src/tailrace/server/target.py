"""
What a request's path and query name.

A path is percent-decoded once, must be UTF-8, and is refused if a segment is empty, `.` or `..`, or
if it holds NUL or a backslash. The key of a stream never touches a file name.
"""

from functools import lru_cache
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from tailrace.protocol.errors import NameInvalid, QueryInvalid
from tailrace.protocol.limits import STREAM_NAME_BYTES_MAX

__all__ = ["STREAM_PREFIX", "parse_query", "stream_key"]

STREAM_PREFIX: Final = b"/v1/stream/"
# A key is `{bucket}\0{stream}`; the base surface has no bucket.
_NO_BUCKET: Final = b"\0"
_QUERY_FIELDS_MAX: Final = 64
_SINGLE: Final = ("offset", "live", "cursor")


@lru_cache(maxsize=16_384)
def stream_key(path: bytes) -> bytes:
    """
    The storage key of a stream on the base surface, from its path as sent.

    Raises:
        NameInvalid: The path does not name a stream.
    """
    name = unquote_to_bytes(path[len(STREAM_PREFIX) :])
    try:
        name.decode()
    except UnicodeDecodeError:
        raise NameInvalid("the path is not UTF-8 after percent-decoding") from None
    if b"%" in path and _broken_escape(path):
        raise NameInvalid("the path has a % that is not followed by two hexadecimal digits")
    if b"\0" in name or b"\\" in name or b"#" in path:
        raise NameInvalid("the path must not contain NUL or a backslash, nor an unescaped '#'")
    for segment in name.split(b"/"):
        if segment in (b"", b".", b".."):
            raise NameInvalid("the path must not have an empty segment, '.' or '..'")
    if len(name) > STREAM_NAME_BYTES_MAX:
        raise NameInvalid(f"the path may have {STREAM_NAME_BYTES_MAX} bytes at most")
    return _NO_BUCKET + name


_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


def _broken_escape(path: bytes) -> bool:
    return any(len(rest) < 2 or not _HEX.issuperset(rest[:2]) for rest in path.split(b"%")[1:])


def parse_query(query: bytes) -> dict[str, str]:
    """
    The parameters that the protocol knows; others are ignored (§9.1).

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
        if decoded not in _SINGLE:
            continue
        if decoded in found:
            raise QueryInvalid(decoded, "must be given once")
        try:
            text = value.replace(b"+", b" ").decode("ascii")
            found[decoded] = unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise QueryInvalid(decoded, "is not UTF-8 after percent-decoding") from None
    return found
