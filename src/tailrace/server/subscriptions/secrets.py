"""The secrets of subscriptions, which the engine stores: made when they are first needed."""

from collections.abc import Callable
from typing import Final

from tailrace.engine.subscriptions.subscriptions import Subscriptions
from tailrace.server.subscriptions.lease_tokens import LeaseTokens
from tailrace.server.subscriptions.signatures import WebhookSigner

__all__ = ["SubscriptionSecrets"]

_SIGNING: Final = "webhook-ed25519"
_TOKENS: Final = "lease-hmac"


class SubscriptionSecrets:
    """The signer of webhooks, and the tokens of leases."""

    def __init__(self, subscriptions: Subscriptions, clock: Callable[[], int]) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._signer: WebhookSigner | None = None
        self._tokens: LeaseTokens | None = None

    async def signer(self) -> WebhookSigner:
        if self._signer is None:
            self._signer = WebhookSigner(await self._subscriptions.secret(_SIGNING))
        return self._signer

    async def tokens(self) -> LeaseTokens:
        if self._tokens is None:
            self._tokens = LeaseTokens(await self._subscriptions.secret(_TOKENS), self._clock)
        return self._tokens

    def now_s(self) -> int:
        """Seconds since 1970."""
        return self._clock() // 1000
