"""The headers of a PUT that creates a fork (forks, today.md)."""

import re
from typing import Final

from tailrace.protocol.errors import HeaderInvalid, OffsetInvalid, Refusal
from tailrace.protocol.names import bucket_of
from tailrace.protocol.offset import Offset, parse_offset
from tailrace.protocol.state import ForkRequest
from tailrace.server.guard.access import Operation
from tailrace.server.message import Request
from tailrace.server.routing.routes import STREAM
from tailrace.server.routing.target import resolve

__all__ = ["parse_fork"]

_FROM: Final = "Stream-Forked-From"
_OFFSET: Final = "Stream-Fork-Offset"
_SUB_OFFSET: Final = "Stream-Fork-Sub-Offset"
_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,15}")
_PATH_CHARS_MAX: Final = 200


def parse_fork(request: Request, root: bytes) -> ForkRequest | None:
    """
    Read the fork headers; None if the request creates an ordinary stream.

    `root` is the configured root of the base surface.

    Raises:
        HeaderInvalid: A header is malformed, or the source is in another bucket or surface.
        Unauthenticated, Forbidden: The principal may not read the source, whether it exists or not.
    """
    headers = request.headers
    source = headers.get(b"stream-forked-from")
    offset = _offset(headers.get(b"stream-fork-offset"))
    sub_offset = _sub_offset(headers.get(b"stream-fork-sub-offset"))
    if source is None:
        for value, name in ((offset, _OFFSET), (sub_offset, _SUB_OFFSET)):
            if value is not None:
                raise HeaderInvalid(name, f"goes together with {_FROM}")
        return None
    key = _source_key(request, source, root)
    principal = request.principal
    if principal is not None and not principal.may(Operation.READ, key):
        path = source.decode("latin-1")[:_PATH_CHARS_MAX]
        raise principal.refusal(Operation.READ, f"the stream {path}")
    return ForkRequest(key, offset, sub_offset or 0)


def _source_key(request: Request, source: bytes, root: bytes) -> bytes:
    path = source
    if request.prefix and path.startswith(request.prefix + b"/"):
        path = path[len(request.prefix) :]
    if not path.startswith(b"/") or b"?" in path:
        raise HeaderInvalid(_FROM, "must be the URL path of a stream, such as /v1/stream/orders")
    try:
        target = resolve(path, root)
    except Refusal as refusal:
        raise HeaderInvalid(_FROM, refusal.detail) from None
    if target.route is not STREAM:
        raise HeaderInvalid(_FROM, "must be the URL path of a stream")
    if bucket_of(target.key) != bucket_of(request.target.key):
        raise HeaderInvalid(
            _FROM,
            "must be a stream of the same bucket; streams under /v1/stream/ are forked there",
        )
    return target.key


def _offset(value: bytes | None) -> Offset | None:
    if value is None:
        return None
    try:
        return parse_offset(value.decode("latin-1"))
    except OffsetInvalid:
        raise HeaderInvalid(
            _OFFSET, "must be an offset as the source returned it; omit it to fork at the tail"
        ) from None


def _sub_offset(value: bytes | None) -> int | None:
    if value is None:
        return None
    if not _NUMBER.fullmatch(value):
        raise HeaderInvalid(_SUB_OFFSET, "must be a whole number in plain digits, such as 3")
    return int(value)
