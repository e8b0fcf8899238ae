"""
Conditional writes (RFC 9110, 13.1): a condition is honoured or refused, and never ignored.

    PUT of a stream, a bucket or a subscription    If-None-Match: *    create only: 412 if it exists
    POST, DELETE                                   If-Match: *         always true, or 404
    anything else                                                      501

The ETag of a stream is that of one response to a read, so it cannot be compared with the stream as
a whole. `Stream-Seq` and producers serve that purpose.
"""

from typing import Final

from tailrace.protocol.errors import BucketExists, StreamExists
from tailrace.server.errors import ConditionFailed, ConditionUnsupported
from tailrace.server.message import Reply, Response
from tailrace.server.problem import problem
from tailrace.server.routing.routes import Endpoint

__all__ = ["conditional"]

_EXISTS: Final = frozenset((StreamExists.code, BucketExists.code))


def conditional(
    method: str, headers: dict[bytes, bytes], endpoint: Endpoint | None, reply: Reply
) -> Reply:
    """
    Return how to reply to a request with a condition.

    Raises:
        ConditionUnsupported: The condition cannot be evaluated.
    """
    if method not in ("PUT", "POST", "DELETE") or endpoint is None:
        return reply
    if_match, if_none_match = headers.get(b"if-match"), headers.get(b"if-none-match")
    if if_match is not None and (if_match != b"*" or method == "PUT"):
        raise ConditionUnsupported("If-Match", method)
    if if_none_match is None:
        return reply
    if if_none_match != b"*" or method != "PUT" or endpoint.upload:
        raise ConditionUnsupported("If-None-Match", method)

    def create_only(response: Response) -> None:
        # A PUT of what exists changes nothing, so it can be refused afterwards. Only that of a
        # subscription may, its owner: its handler refuses before.
        exists = response.status == 200 or response.code in _EXISTS
        reply(problem(ConditionFailed()) if exists else response)

    return create_only
