"""A refusal as a response: `application/problem+json` (RFC 9457) and the headers of its kind."""

from collections.abc import Callable
from typing import Final

import msgspec

from tailrace.engine.engine import Outcome
from tailrace.engine.errors import DiskFull, StorageFailed
from tailrace.protocol.errors import (
    OffsetGone,
    ProducerFenced,
    ProducerGap,
    Refusal,
    StreamClosed,
)
from tailrace.protocol.subscription_errors import AlreadyClaimed
from tailrace.server import headers as h
from tailrace.server.errors import MethodNotAllowed, NotReady, SnapshotNotStored, TooManyConnections
from tailrace.server.guard.access.errors import CredentialsRefused, KeysNotReady, Unauthenticated
from tailrace.server.guard.limits.errors import RateLimited, TooManyWaiters
from tailrace.server.message import Reply, Response
from tailrace.server.subscriptions.errors import TokenExpired, TokenInvalid

__all__ = ["problem", "reply_unless_refused"]

_CHALLENGE: Final = b'Bearer realm="tailrace"'
_RETRY_SOON: Final = (
    DiskFull, KeysNotReady, NotReady, SnapshotNotStored, StorageFailed, TooManyConnections,
    TooManyWaiters,
)  # fmt: skip
"""Refusals that carry `Retry-After: 1`."""


def problem(refusal: Refusal, *, subscriptions: bool = False) -> Response:
    """The response to a refused request; `subscriptions`: to a route below `__ds`."""
    headers = [(h.CONTENT_TYPE, b"application/problem+json"), h.NO_STORE, *_headers(refusal)]
    content: dict[str, object] = {
        "type": f"urn:tailrace:problem:{refusal.code}",
        "title": refusal.title,
        "status": refusal.status,
        # A detail may quote bytes of the client that are not UTF-8: replace them.
        "detail": refusal.detail.encode("utf-8", "replace").decode(),
        "code": refusal.code,
    }
    if subscriptions:
        content["error"] = _subscription_error(refusal, content["detail"])
    response = Response(refusal.status, headers, msgspec.json.encode(content))
    response.code = refusal.code
    return response


def _subscription_error(refusal: Refusal, message: object) -> dict[str, object]:
    """The error in the form of the subscription API, as a member of the problem."""
    error = {"code": refusal.code.upper().replace("-", "_"), "message": message}
    if isinstance(refusal, AlreadyClaimed):
        error |= {"current_holder": refusal.current_holder, "generation": refusal.generation}
    return error


def reply_unless_refused(reply: Reply, response: Response) -> Callable[[Outcome], None]:
    """A callback for the outcome of a command: replies with `response`, or with the refusal."""
    return lambda outcome: reply(problem(outcome) if isinstance(outcome, Refusal) else response)


def _headers(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    match refusal:
        case StreamClosed():
            # §5.2: closure is in headers, so that clients need not parse bodies.
            headers = [(h.STREAM_CLOSED, h.TRUE), (h.STREAM_NEXT_OFFSET, refusal.tail.encode())]
            if refusal.epoch is not None:
                headers.append((h.PRODUCER_EPOCH, b"%d" % refusal.epoch))
                headers.append((h.PRODUCER_SEQ, b"%d" % (refusal.last_seq or 0)))
            return headers
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
        case Unauthenticated() | TokenInvalid() | TokenExpired():
            return [(h.WWW_AUTHENTICATE, _CHALLENGE)]
        case CredentialsRefused():
            # RFC 6750 §3. Every `reason` is a constant of ours without quotation marks.
            value = b'%b, error="invalid_token", error_description="%b"'
            return [(h.WWW_AUTHENTICATE, value % (_CHALLENGE, refusal.reason.encode()))]
        case RateLimited():
            return [(b"Retry-After", b"%d" % refusal.retry_after_s)]
        case _ if isinstance(refusal, _RETRY_SOON):
            return [(b"Retry-After", b"1")]
    return []
