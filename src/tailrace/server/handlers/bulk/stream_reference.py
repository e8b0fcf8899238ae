"""References to streams in a request's body or query instead of its path."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from tailrace.protocol.names import bucketed_stream_key
from tailrace.server.errors import RequestInvalid
from tailrace.server.guard.access import Operation, Principal
from tailrace.server.message import Request
from tailrace.server.routing.target import base_key

__all__ = ["Source", "StreamReference", "decode_body"]

T = TypeVar("T")


class StreamReference(msgspec.Struct, kw_only=True):
    """A stream, by bucket and id, or by its path on the base surface."""

    bucket: str | None = None
    stream: str | None = None
    path: str | None = None

    def key(self) -> bytes:
        """Return the storage key."""
        if self.path is not None and self.bucket is None and self.stream is None:
            return base_key(self.path)
        if self.path is None and self.bucket is not None and self.stream is not None:
            return bucketed_stream_key(self.bucket, self.stream)
        raise RequestInvalid("name a stream by bucket and stream, or by path alone")

    def readable_key(self, principal: Principal | None) -> bytes:
        """Return the storage key of a stream that a principal may read; None may read all."""
        key = self.key()
        if principal is not None and not principal.may(Operation.READ, key):
            name = self.path if self.path is not None else f"{self.bucket}/{self.stream}"
            raise principal.refusal(Operation.READ, f"the stream {name[:200]}")
        return key


class Source(NamedTuple):
    """What the messages of a range have in common."""

    range: int
    bucket: str | None
    stream: str
    content_type: str
    json: bool


def decode_body(request: Request, decode: Callable[[bytes], T]) -> T:
    """Decode the JSON body of a request."""
    try:
        return decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestInvalid(f"the body is not as documented: {str(error)[:200]}") from None
