"""Subscriptions as JSON, and the URLs in it."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from urllib.parse import quote

from tailrace.protocol.subscription import LinkedStream, SubscriptionState
from tailrace.server.routing.target import RESERVED_SEGMENT
from tailrace.server.subscriptions.signatures import SIGNATURE_ALGORITHM

__all__ = ["api_url", "callback_url", "stream_views", "subscription_view", "wake_stream_views"]


def api_url(origin: str, scope: bytes) -> str:
    """The URL of the subscription API of a bucket, or of the base surface."""
    surface = scope.decode() or "v1/stream"
    return f"{origin}/{surface}/{RESERVED_SEGMENT}"


def callback_url(origin: str, scope: bytes, subscription_id: str) -> str:
    """Where the receiver of a webhook acknowledges it."""
    return f"{api_url(origin, scope)}/subscriptions/{quote(subscription_id, safe='')}/callback"


def stream_views(
    streams: Iterable[LinkedStream], may_know: Callable[[str], bool]
) -> list[dict[str, object]]:
    """The streams of a subscription with their cursors."""
    return [
        {
            "path": stream.path,
            "link_type": stream.link_type,
            "acked_offset": stream.acked_offset,
            "tail_offset": stream.tail_offset,
            "has_pending": stream.has_pending,
        }
        for stream in streams
        if may_know(stream.path)
    ]


def wake_stream_views(streams: Iterable[LinkedStream]) -> list[dict[str, object]]:
    """The streams of a wake, which the engine has filtered by the owner's rights."""
    return stream_views(streams, lambda _path: True)


def subscription_view(
    subscription_id: str, state: SubscriptionState, origin: str, scope: bytes, kid: str
) -> dict[str, object]:
    """A subscription without its streams. Fields that its type does not have are left out."""
    config = state.config
    content: dict[str, object] = {
        "id": subscription_id,
        "subscription_id": subscription_id,
        "type": config.type,
        "pattern": config.pattern,
        "wake_stream": config.wake_stream,
        "lease_ttl_ms": config.lease_ttl_ms,
        "created_at": _time(state.created_at),
        "status": state.status,
        "description": config.description,
        "generation": state.generation,
        "holder": state.holder,
        "pending_streams": state.pending,
        "last_error": state.last_error,
        "next_attempt_at": None if state.retry_at is None else _time(state.retry_at),
    }
    if config.webhook_url is not None:
        content["webhook"] = {
            "url": config.webhook_url,
            "signing": {
                "alg": SIGNATURE_ALGORITHM,
                "kid": kid,
                "jwks_url": f"{api_url(origin, scope)}/jwks.json",
            },
        }
    return {name: value for name, value in content.items() if value is not None}


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
