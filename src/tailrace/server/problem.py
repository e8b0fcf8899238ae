"""A refusal as an answer: `application/problem+json` (RFC 9457) and the headers it owes."""

import msgspec

from tailrace.engine.errors import DiskFull, StorageFailed
from tailrace.protocol.errors import (
    OffsetGone,
    ProducerFenced,
    ProducerGap,
    Refusal,
    StreamClosed,
)
from tailrace.server import headers as h
from tailrace.server.errors import MethodNotAllowed, NotReady, SnapshotNotStored, TooManyConnections
from tailrace.server.guard.access.errors import CredentialsRefused, KeysNotReady, Unauthenticated
from tailrace.server.guard.limits.errors import RateLimited, TooManyWaiters
from tailrace.server.message import Response

__all__ = ["problem"]

_RETRY_AFTER_S = b"1"
_CHALLENGE = b'Bearer realm="tailrace"'


def problem(refusal: Refusal, *, body: bool = True) -> Response:
    """The answer to a refused request; `body` is false for HEAD."""
    headers = [(h.CONTENT_TYPE, b"application/problem+json"), h.NO_STORE, *_owed(refusal)]
    response = Response(refusal.status, headers)
    response.code = refusal.code
    if not body:
        return response
    content = {
        "type": f"urn:tailrace:problem:{refusal.code}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
        "code": refusal.code,
    }
    # A detail may quote what the client sent; what is not UTF-8 in it is replaced.
    content["detail"] = refusal.detail.encode("utf-8", "replace").decode()
    response.body = msgspec.json.encode(content)
    return response


def _owed(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    match refusal:
        case StreamClosed():
            # §5.2: closure is told by headers, so that nobody parses bodies.
            owed = [(h.STREAM_CLOSED, h.TRUE), (h.STREAM_NEXT_OFFSET, refusal.tail.encode())]
            if refusal.epoch is not None:
                owed.append((h.PRODUCER_EPOCH, b"%d" % refusal.epoch))
                owed.append((h.PRODUCER_SEQ, b"%d" % (refusal.last_seq or 0)))
            return owed
        case ProducerFenced():
            return [(h.PRODUCER_EPOCH, b"%d" % refusal.epoch)]
        case ProducerGap():
            return [
                (h.PRODUCER_EXPECTED_SEQ, b"%d" % refusal.expected_seq),
                (h.PRODUCER_RECEIVED_SEQ, b"%d" % refusal.received_seq),
            ]
        case OffsetGone():
            return [(h.STREAM_EARLIEST_OFFSET, refusal.earliest.encode())]
        case MethodNotAllowed():
            return [(b"Allow", refusal.allowed.encode())]
        case Unauthenticated():
            return [(h.WWW_AUTHENTICATE, _CHALLENGE)]
        case CredentialsRefused():
            # RFC 6750 §3: what is wrong with them. A reason is our own words, without quotes.
            why = b'%b, error="invalid_token", error_description="%b"'
            return [(h.WWW_AUTHENTICATE, why % (_CHALLENGE, refusal.reason.encode()))]
        case KeysNotReady():
            return [(b"Retry-After", _RETRY_AFTER_S)]
        case RateLimited():
            return [(b"Retry-After", b"%d" % refusal.retry_after_s)]
        case StorageFailed() | DiskFull() | NotReady() | TooManyConnections() | SnapshotNotStored():
            return [(b"Retry-After", _RETRY_AFTER_S)]
        case TooManyWaiters():
            return [(b"Retry-After", _RETRY_AFTER_S)]
    return []
