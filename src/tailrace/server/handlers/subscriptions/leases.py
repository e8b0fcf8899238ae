"""
Leases of wakes: claim, callback, ack and release; and the public keys of webhooks.

The checks of a callback, an ack or a release come in this order: a token is there (401), the
subscription exists (404), the token is one of its own (401), the body is valid (400), the wake is
the current one (409), each ack is possible (409).
"""

from typing import Final

import msgspec

from tailrace.engine.subscriptions.subscriptions import Subscriptions
from tailrace.protocol.subscription_errors import Fenced
from tailrace.server import headers as h
from tailrace.server.handlers.subscriptions.bodies import (
    decode_ack,
    decode_claim,
    decode_release,
)
from tailrace.server.handlers.subscriptions.manage import SubscriptionHandlers, named
from tailrace.server.message import Request, Response
from tailrace.server.subscriptions.errors import TokenInvalid
from tailrace.server.subscriptions.lease_tokens import CALLBACK_KIND, CLAIM_KIND
from tailrace.server.subscriptions.owners import may_know
from tailrace.server.subscriptions.secrets import SubscriptionSecrets
from tailrace.server.subscriptions.views import stream_views

__all__ = ["LeaseHandlers"]

_JSON: Final = (h.CONTENT_TYPE, b"application/json")
_JWKS: Final = [
    (h.CONTENT_TYPE, b"application/jwk-set+json"),
    (h.CACHE_CONTROL, b"public, max-age=300"),
]


class LeaseHandlers:
    """POST of claim, callback, ack and release, and GET of the keys."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        secrets: SubscriptionSecrets,
        manage: SubscriptionHandlers,
    ) -> None:
        self._subscriptions = subscriptions
        self._secrets = secrets
        self._manage = manage

    async def claim(self, request: Request) -> Response:
        """Take the pending work of a pull-wake subscription."""
        scope, subscription_id = named(request)
        # Before the lookup of the body: a subscription that does not exist is 404 in any case.
        self._manage.check_may_use(request, scope, subscription_id)
        worker = decode_claim(request).worker
        tokens = await self._secrets.tokens()
        internal_id = self._subscriptions.find(scope, subscription_id).id
        claim = await self._subscriptions.claim(scope, subscription_id, worker)
        principal, prefix = request.principal, request.target.key
        content = {
            "wake_id": claim.wake_id,
            "generation": claim.generation,
            "token": tokens.issue(
                CLAIM_KIND, scope, subscription_id, internal_id, claim.generation
            ),
            "streams": stream_views(
                claim.streams,
                lambda path: principal is None or may_know(principal, prefix + path.encode()),
            ),
            "lease_ttl_ms": claim.lease_ttl_ms,
        }
        return Response(200, [_JSON, h.NO_STORE], msgspec.json.encode(content))

    async def callback(self, request: Request) -> Response:
        """Acknowledge the wake of a webhook, or extend its lease."""
        return await self._acknowledge(request, CALLBACK_KIND)

    async def ack(self, request: Request) -> Response:
        """Acknowledge a claimed wake, or extend its lease."""
        return await self._acknowledge(request, CLAIM_KIND)

    async def _acknowledge(self, request: Request, kind: str) -> Response:
        scope, subscription_id = named(request)
        generation = await self._verify(request, kind)
        body = decode_ack(request)
        if body.generation != generation:
            raise Fenced(body.generation)
        next_wake = await self._subscriptions.ack(
            scope,
            subscription_id,
            body.wake_id,
            body.generation,
            [(ack.stream.strip("/"), ack.offset) for ack in body.acks],
            done=body.done,
        )
        content = msgspec.json.encode({"ok": True, "next_wake": next_wake})
        return Response(200, [_JSON, h.NO_STORE], content)

    async def release(self, request: Request) -> Response:
        """Give a claimed wake back, and acknowledge nothing."""
        scope, subscription_id = named(request)
        generation = await self._verify(request, CLAIM_KIND)
        body = decode_release(request)
        if body.generation != generation:
            raise Fenced(body.generation)
        await self._subscriptions.release(scope, subscription_id, body.wake_id, body.generation)
        return Response(204, [h.NO_STORE])

    async def _verify(self, request: Request, kind: str) -> int:
        """The generation that the token of a request is for."""
        scope, subscription_id = named(request)
        scheme, _, token = request.headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise TokenInvalid
        tokens = await self._secrets.tokens()
        # After the pause: it is the one that is changed then.
        internal_id = self._subscriptions.find(scope, subscription_id).id
        text = token.strip().decode("latin-1")
        return tokens.verify(text, kind, scope, subscription_id, internal_id)

    async def jwks(self, _request: Request) -> Response:
        """The public keys that verify webhooks."""
        return Response(200, list(_JWKS), (await self._secrets.signer()).jwks)
