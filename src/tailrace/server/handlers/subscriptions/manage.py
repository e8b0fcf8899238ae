"""Subscriptions: create, show, list and delete them, and link streams explicitly."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from tailrace.engine.subscriptions.subscriptions import Subscriptions, SubscriptionView
from tailrace.protocol.subscription import SubscriptionState
from tailrace.protocol.subscription_errors import SubscriptionNotFound
from tailrace.server import headers as h
from tailrace.server.errors import ConditionFailed
from tailrace.server.guard.access import Principal
from tailrace.server.handlers.buckets import json_response, parse_limit
from tailrace.server.handlers.subscriptions.bodies import (
    check_id,
    checked_path,
    decode_config,
    decode_links,
)
from tailrace.server.message import Request, Response
from tailrace.server.routing.query import parse_query
from tailrace.server.subscriptions.addresses import Networks, check_url
from tailrace.server.subscriptions.owners import (
    NO_OWNER,
    Owners,
    check_covers,
    check_may_append,
    covers,
    may_know,
)
from tailrace.server.subscriptions.secrets import SubscriptionSecrets
from tailrace.server.subscriptions.views import stream_views, subscription_view

__all__ = ["SUBSCRIPTIONS_QUERY", "SubscriptionHandlers", "named"]

SUBSCRIPTIONS_QUERY: Final = ("after", "limit")
"""The parameters of listings of subscriptions."""

_STEP: Final = 1_000
_JSON: Final = (h.CONTENT_TYPE, b"application/json")


class SubscriptionHandlers:
    """Everything about subscriptions but their leases."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        secrets: SubscriptionSecrets,
        owners: Owners,
        public_url: str,
        networks: Networks,
    ) -> None:
        self._subscriptions = subscriptions
        self._secrets = secrets
        self._owners = owners
        self._public_url = public_url.rstrip("/")
        self._networks = networks

    async def create(self, request: Request) -> Response:
        """PUT: 201 if it is new, 200 if it exists with the same configuration."""
        scope, subscription_id = named(request)
        config = decode_config(request)
        if config.webhook_url is not None:
            check_url(config.webhook_url, self._networks)
        principal = request.principal
        check_covers(principal, request.target.key, config.pattern, config.streams)
        if config.wake_stream is not None:
            check_may_append(principal, request.target.key, config.wake_stream)
        try:
            previous = self._subscriptions.find(scope, subscription_id).owner or b""
        except SubscriptionNotFound:
            previous = b""
        else:
            if b"if-none-match" in request.headers:
                # A PUT renews the owner. And a refusal waits for what it was decided upon.
                await self._subscriptions.records.durable()
                raise ConditionFailed
        origin = self._public_url or request.origin.decode("latin-1")
        owner = self._owners.encode(principal, origin, previous)
        view = await self._subscriptions.create(scope, subscription_id, config, owner)
        body = msgspec.json.encode(await self._describe(request, view))
        headers = [_JSON, h.NO_STORE]
        if view.created:
            headers.append((h.LOCATION, request.url))
        return Response(201 if view.created else 200, headers, body)

    async def describe(self, request: Request) -> Response:
        """GET: the subscription with its streams and cursors."""
        scope, subscription_id = named(request)
        self.check_may_use(request, scope, subscription_id)
        view = await self._subscriptions.view(scope, subscription_id)
        return await json_response(request, await self._describe(request, view))

    async def _describe(self, request: Request, view: SubscriptionView) -> dict[str, object]:
        principal = request.principal
        content = await self._view(view.id, view.state, scope_of(request))
        prefix = request.target.key
        content["streams"] = stream_views(
            view.streams,
            lambda path: principal is None or may_know(principal, prefix + path.encode()),
        )
        if view.is_cut:
            content["streams_cut"] = True
        return content

    async def list(self, request: Request) -> Response:
        """The subscriptions of a surface that the principal's grants cover, ordered by id."""
        query = parse_query(request.query, SUBSCRIPTIONS_QUERY)
        limit = parse_limit(query.get("limit"))
        scope = scope_of(request)
        shown: list[dict[str, object]] = []
        has_more = False
        async for view in self._visible(request.principal, scope, query.get("after", "")):
            if len(shown) == limit:
                has_more = True
                break
            shown.append(view)
        content: dict[str, object] = {
            "subscriptions": shown,
            "next_cursor": shown[-1]["id"] if shown else None,
            "has_more": has_more,
        }
        return await json_response(request, content)

    async def overview(self, request: Request) -> Response:
        """`/-/subscriptions`: those of all surfaces, for people and the UI."""
        limit = parse_limit(parse_query(request.query, ("limit",)).get("limit"))
        shown: list[dict[str, object]] = []
        for scope in self._subscriptions.scopes():
            async for view in self._visible(request.principal, scope, ""):
                shown.append({"bucket_id": scope.decode() or None, **view})
                if len(shown) > limit:
                    content = {"subscriptions": shown[:limit], "has_more": True}
                    return await json_response(request, content)
        return await json_response(request, {"subscriptions": shown, "has_more": False})

    async def _visible(
        self, principal: Principal | None, scope: bytes, after: str
    ) -> AsyncGenerator[dict[str, object], None]:
        """The subscriptions of a surface after an id that a listing shows, in bounded steps."""
        has_more = True
        while has_more:
            found, has_more = self._subscriptions.page(scope, after, _STEP)
            for subscription_id, state in found:
                after = subscription_id
                if self._may_see(principal, scope, state):
                    yield await self._view(subscription_id, state, scope)
            await asyncio.sleep(0)

    async def delete(self, request: Request) -> Response:
        """DELETE: 204, also if there is none."""
        scope, subscription_id = named(request)
        try:
            self.check_may_use(request, scope, subscription_id)
        except SubscriptionNotFound:
            return Response(204, [h.NO_STORE])
        await self._subscriptions.delete(scope, subscription_id)
        return Response(204, [h.NO_STORE])

    async def link(self, request: Request) -> Response:
        """POST of streams: link them explicitly, at their tails."""
        scope, subscription_id = named(request)
        paths = decode_links(request)
        self.check_may_use(request, scope, subscription_id)
        check_covers(request.principal, request.target.key, None, paths)
        await self._subscriptions.link(scope, subscription_id, paths)
        return Response(204, [h.NO_STORE])

    async def unlink(self, request: Request) -> Response:
        """DELETE of an explicit link: 204, also if there is none."""
        scope, subscription_id = named(request)
        path = checked_path(request.target.key, request.target.names[1])
        self.check_may_use(request, scope, subscription_id)
        await self._subscriptions.unlink(scope, subscription_id, path)
        return Response(204, [h.NO_STORE])

    def unknown(self, _request: Request) -> Response:
        raise SubscriptionNotFound

    def check_may_use(self, request: Request, scope: bytes, subscription_id: str) -> None:
        """
        Require the owner, or a principal whose grants cover the whole subscription.

        Raises:
            SubscriptionNotFound: There is none.
            Forbidden, Unauthenticated: The principal may not use it.
        """
        state = self._subscriptions.find(scope, subscription_id)
        principal = request.principal
        if principal is None or self._owners.owns(principal, state.owner):
            return
        linked = self._subscriptions.linked_paths(scope, subscription_id)
        check_covers(principal, request.target.key, state.config.pattern, linked)

    def _may_see(self, principal: Principal | None, scope: bytes, state: SubscriptionState) -> bool:
        """Whether a listing shows a subscription."""
        return (
            principal is None
            or self._owners.owns(principal, state.owner)
            or covers(principal, scope + b"\0", state.config.pattern or "**")
        )

    async def _view(
        self, subscription_id: str, state: SubscriptionState, scope: bytes
    ) -> dict[str, object]:
        kid = (await self._secrets.signer()).kid
        origin = self._owners.origin(state.owner)
        view = subscription_view(subscription_id, state, origin, scope, kid)
        if self._owners.guarded and self._owners.principal(state.owner) is None:
            view |= {"status": "failed", "last_error": NO_OWNER}
        return view


def scope_of(request: Request) -> bytes:
    """The id of the bucket; empty on the base surface."""
    return request.target.key[:-1]


def named(request: Request) -> tuple[bytes, str]:
    """The scope and the id of the subscription that the path names."""
    return scope_of(request), check_id(request.target.names[0])
