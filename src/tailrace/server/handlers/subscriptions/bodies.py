"""The bodies of requests to subscriptions, checked before the engine sees them."""

from collections.abc import Callable
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from tailrace.protocol.errors import Refusal
from tailrace.protocol.names import NO_BUCKET, bucketed_stream_key
from tailrace.protocol.subscription import LEASE_MS_DEFAULT, SubscriptionConfig, checked
from tailrace.protocol.subscription_errors import InvalidSubscription
from tailrace.server.message import Request
from tailrace.server.routing.target import base_key

__all__ = [
    "Ack",
    "AckBody",
    "ClaimBody",
    "LinksBody",
    "ReleaseBody",
    "SubscriptionBody",
    "check_id",
    "checked_path",
    "decode_ack",
    "decode_claim",
    "decode_config",
    "decode_links",
    "decode_release",
]

BODY_BYTES_MAX: Final = 4 << 20
STREAMS_COUNT_MAX: Final = 1_000
"""Streams, or acks, of one request."""
ID_BYTES_MAX: Final = 256

T = TypeVar("T")

_Paths: TypeAlias = Annotated[tuple[str, ...], Meta(max_length=STREAMS_COUNT_MAX)]
_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
_Generation: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class _WebhookBody(msgspec.Struct, forbid_unknown_fields=True):
    url: str


class SubscriptionBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a PUT. Unknown fields are refused: nothing is accepted and then ignored."""

    type: str
    pattern: str | None = None
    streams: _Paths | None = None
    webhook: _WebhookBody | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int = LEASE_MS_DEFAULT
    description: Annotated[str, Meta(max_length=1024)] | None = None


class LinksBody(msgspec.Struct):
    streams: Annotated[_Paths, Meta(min_length=1)]


class ClaimBody(msgspec.Struct):
    worker: _Name


class Ack(msgspec.Struct):
    stream: str
    offset: str


class AckBody(msgspec.Struct, kw_only=True):
    """The body of a callback or an ack."""

    wake_id: str
    generation: _Generation
    acks: Annotated[tuple[Ack, ...], Meta(max_length=STREAMS_COUNT_MAX)] = ()
    done: bool = False


class ReleaseBody(msgspec.Struct):
    wake_id: str
    generation: _Generation


_config: Final = msgspec.json.Decoder(SubscriptionBody).decode
_links: Final = msgspec.json.Decoder(LinksBody).decode
_claim: Final = msgspec.json.Decoder(ClaimBody).decode
_ack: Final = msgspec.json.Decoder(AckBody).decode
_release: Final = msgspec.json.Decoder(ReleaseBody).decode


def decode_config(request: Request) -> SubscriptionConfig:
    """
    The configuration in its canonical form.

    Raises:
        InvalidSubscription: It is not valid.
    """
    body = _decode(request, _config)
    scope = request.target.key
    config = checked(
        SubscriptionConfig(
            type=body.type,
            pattern=body.pattern,
            streams=body.streams or (),
            webhook_url=None if body.webhook is None else body.webhook.url,
            wake_stream=body.wake_stream,
            lease_ttl_ms=body.lease_ttl_ms,
            description=body.description,
        )
    )
    if config.pattern is not None:
        _check_pattern(scope, config.pattern)
    for path in config.streams:
        checked_path(scope, path)
    if config.wake_stream is not None:
        checked_path(scope, config.wake_stream)
    return config


def decode_links(request: Request) -> tuple[str, ...]:
    """The paths to link."""
    paths = _decode(request, _links).streams
    return tuple(checked_path(request.target.key, path) for path in paths)


def decode_claim(request: Request) -> ClaimBody:
    return _decode(request, _claim)


def decode_ack(request: Request) -> AckBody:
    return _decode(request, _ack)


def decode_release(request: Request) -> ReleaseBody:
    return _decode(request, _release)


def _decode(request: Request, decode: Callable[[bytes], T]) -> T:
    if len(request.body) > BODY_BYTES_MAX:
        raise InvalidSubscription(f"the body may have {BODY_BYTES_MAX} bytes at most")
    try:
        return decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSubscription(f"the body is not as documented: {str(error)[:200]}") from None


def check_id(subscription_id: str) -> str:
    """The id of a subscription, if it can be one."""
    if not subscription_id or not subscription_id.isprintable() or "/" in subscription_id:
        raise InvalidSubscription("the id must be printable text without a slash")
    if len(subscription_id.encode()) > ID_BYTES_MAX:
        raise InvalidSubscription(f"the id may have {ID_BYTES_MAX} bytes at most")
    return subscription_id


def checked_path(scope: bytes, text: str) -> str:
    """
    The path of a stream without surrounding slashes, by the rules of paths in URLs.

    Raises:
        InvalidSubscription: No stream of this surface can have it.
    """
    path = text.strip("/")
    try:
        if scope == NO_BUCKET:
            base_key(path)
        else:
            bucketed_stream_key(scope[:-1].decode(), path)
    except Refusal as refusal:
        raise InvalidSubscription(f"{path[:200]!r}: {refusal.detail}") from None
    return path


def _check_pattern(scope: bytes, pattern: str) -> None:
    """Refuse what can match nothing, or looks like a glob of another kind."""
    segments = pattern.split("/")
    for segment in segments:
        if "*" in segment and segment not in ("*", "**"):
            raise InvalidSubscription(
                f"pattern: {segment[:200]!r}: * and ** stand for whole segments"
            )
    if scope != NO_BUCKET and sum(segment != "**" for segment in segments) > 1:
        raise InvalidSubscription("pattern: ids of streams in a bucket have no slash")
    # With a letter for each wildcard, it must be the name of a stream.
    if scope == NO_BUCKET:
        name = "/".join("x" if "*" in segment else segment for segment in segments)
    else:
        name = next((segment for segment in segments if "*" not in segment), "x")
    checked_path(scope, name)
