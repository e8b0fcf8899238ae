"""Requests that name streams in their body, as text, and not in their path."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from tailrace.protocol.names import bucketed_stream_key
from tailrace.server.errors import RequestInvalid
from tailrace.server.guard.access import Operation, Principal
from tailrace.server.guard.access.errors import Forbidden, Unauthenticated
from tailrace.server.guard.access.principal import ANONYMOUS_ID
from tailrace.server.message import Request
from tailrace.server.target import base_key

__all__ = ["Named", "Source", "decode_body"]

T = TypeVar("T")


class Named(msgspec.Struct, kw_only=True):
    """A stream, by its bucket and its id, or by its path on the base surface."""

    bucket: str | None = None
    stream: str | None = None
    path: str | None = None

    def key(self) -> bytes:
        """
        The key that it is stored under.

        Raises:
            RequestInvalid: It is named in neither way, or in both.
            BucketInvalid, NameInvalid: Nothing can be called this.
        """
        if self.path is not None and self.bucket is None and self.stream is None:
            return base_key(self.path)
        if self.path is None and self.bucket is not None and self.stream is not None:
            return bucketed_stream_key(self.bucket, self.stream)
        raise RequestInvalid("name a stream by bucket and stream, or by path alone")

    def readable_key(self, principal: Principal | None) -> bytes:
        """
        The same, of a stream that a principal may read; None may read all.

        Raises:
            Forbidden, Unauthenticated: It may not, whether the stream exists or not.
        """
        key = self.key()
        if principal is not None and not principal.may(Operation.READ, key):
            if principal.id == ANONYMOUS_ID:
                # With credentials it may be another matter.
                raise Unauthenticated
            name = self.path if self.path is not None else f"{self.bucket}/{self.stream}"
            raise Forbidden(principal.id, Operation.READ.value, f"the stream {name[:200]}")
        return key


class Source(NamedTuple):
    """What all messages of a range have in common."""

    range: int
    bucket: str | None
    stream: str
    content_type: str
    json: bool


def decode_body(request: Request, decode: Callable[[bytes], T]) -> T:
    """
    The body of a request.

    Raises:
        RequestInvalid: It is not JSON, or not of its form.
    """
    try:
        return decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestInvalid(f"the body is not what is expected: {str(error)[:200]}") from None
