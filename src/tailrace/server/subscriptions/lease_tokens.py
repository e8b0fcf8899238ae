"""
The tokens of leases: what a worker must send to acknowledge a wake.

A token names its kind, its subscription, the generation of the wake and its own expiry, and has an
HMAC over them. The subscription is also named by its internal id: one that is created again is
another one. Nothing is stored for a token. That its generation is the current one is checked by the
engine, when it changes the subscription.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Final

import msgspec

from tailrace.server.subscriptions.errors import TokenExpired, TokenInvalid
from tailrace.server.subscriptions.signatures import base64url

__all__ = ["CALLBACK_KIND", "CLAIM_KIND", "TOKEN_S", "LeaseTokens"]

TOKEN_S: Final = 3600
"""The life of a token."""
CALLBACK_KIND: Final = "callback"
CLAIM_KIND: Final = "claim"

_TOKEN_CHARS_MAX: Final = 4096


class _Content(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: str
    scope: str
    subscription_id: str
    internal_id: int
    generation: int
    expires_at: int


_decode: Final = msgspec.json.Decoder(_Content).decode


class LeaseTokens:
    """Makes and verifies tokens with one secret."""

    def __init__(self, secret: bytes, clock: Callable[[], int]) -> None:
        self._secret = secret
        self._clock = clock

    def issue(
        self, kind: str, scope: bytes, subscription_id: str, internal_id: int, generation: int
    ) -> str:
        """A token for one wake of a subscription."""
        expires_at = self._clock() + TOKEN_S * 1000
        content = _Content(
            kind, scope.decode(), subscription_id, internal_id, generation, expires_at
        )
        payload = msgspec.json.encode(content)
        return f"{base64url(payload)}.{base64url(self._mac(payload))}"

    def verify(
        self, token: str, kind: str, scope: bytes, subscription_id: str, internal_id: int
    ) -> int:
        """
        The generation that a token was issued for.

        Raises:
            TokenInvalid: It is not a token of this kind for this subscription.
            TokenExpired: It is too old.
        """
        if len(token) > _TOKEN_CHARS_MAX:
            raise TokenInvalid
        encoded, _, mac = token.partition(".")
        try:
            payload = _decoded(encoded)
            is_ours = hmac.compare_digest(_decoded(mac), self._mac(payload))
        except (binascii.Error, ValueError):
            raise TokenInvalid from None
        if not is_ours:
            raise TokenInvalid
        # The MAC is ours, so that the content is as we wrote it.
        content = _decode(payload)
        if (content.kind, content.scope, content.subscription_id, content.internal_id) != (
            kind,
            scope.decode(),
            subscription_id,
            internal_id,
        ):
            raise TokenInvalid
        if content.expires_at <= self._clock():
            raise TokenExpired
        return content.generation

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, hashlib.sha256)


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
