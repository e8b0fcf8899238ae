"""The values of subscriptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ClaimedWake", "SubscribedStream", "SubscriptionInfo"]


@dataclass(frozen=True, slots=True)
class SubscribedStream:
    """A stream of a subscription, and its cursor."""

    path: str
    """Relative to the bucket, or to the base surface."""
    link_type: str
    """`explicit`, or `glob` if the pattern matches it."""
    acked_offset: str
    """Where reading continues: everything before it is acknowledged."""
    tail_offset: str | None = None
    has_pending: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """A subscription as the server shows it."""

    id: str
    type: str
    """`webhook` or `pull-wake`."""
    lease_ttl_ms: int
    status: str
    """`failed` while a webhook is retried, else `active`."""
    created_at: str
    pattern: str | None = None
    wake_stream: str | None = None
    webhook_url: str | None = None
    description: str | None = None
    streams: tuple[SubscribedStream, ...] = ()
    """Empty in a listing."""
    pending_streams: int | None = None
    """The number of streams with pending work; None from other servers."""
    last_error: str | None = None
    """Why the last webhook failed."""
    new: bool = False
    """This request created it."""


@dataclass(frozen=True, slots=True)
class ClaimedWake:
    """A wake that was claimed, and the token of its lease."""

    wake_id: str
    generation: int
    token: str
    lease_ttl_ms: int
    streams: tuple[SubscribedStream, ...]

    @property
    def pending(self) -> tuple[SubscribedStream, ...]:
        """The streams with pending work."""
        return tuple(stream for stream in self.streams if stream.has_pending)


def parse_stream(found: Mapping[str, Any]) -> SubscribedStream:
    return SubscribedStream(
        found["path"],
        found["link_type"],
        found["acked_offset"],
        found.get("tail_offset"),
        bool(found.get("has_pending")),
    )


def parse_subscription(found: Mapping[str, Any], *, new: bool = False) -> SubscriptionInfo:
    return SubscriptionInfo(
        id=found["id"],
        type=found["type"],
        lease_ttl_ms=found["lease_ttl_ms"],
        status=found["status"],
        created_at=str(found.get("created_at", "")),
        pattern=found.get("pattern"),
        wake_stream=found.get("wake_stream"),
        webhook_url=(found.get("webhook") or {}).get("url"),
        description=found.get("description"),
        streams=tuple(map(parse_stream, found.get("streams") or ())),
        pending_streams=found.get("pending_streams"),
        last_error=found.get("last_error"),
        new=new,
    )


def parse_claim(found: Mapping[str, Any]) -> ClaimedWake:
    return ClaimedWake(
        found["wake_id"],
        found["generation"],
        found["token"],
        found["lease_ttl_ms"],
        tuple(map(parse_stream, found["streams"])),
    )
