"""
WakeDelivery of webhooks: which wake is sent next, and how many at once.

Rule 1: the engine says when a wake is due, first tries and retries alike, and keeps the schedule.
This module keeps nothing that a restart must not lose.

Rule 2: a receiver that hangs or fails holds up nobody else. Attempts are bounded in total and per
host, each has a deadline, and hosts take turns.

Rule 3: a newer wake of a subscription replaces the older one, queued or on its way: the engine
would not accept the older one's result.
"""

import asyncio
from collections import deque
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
import structlog

from tailrace.engine.subscriptions.subscriptions import Subscriptions, WakeDelivery
from tailrace.protocol.errors import Refusal
from tailrace.server.subscriptions.addresses import Networks
from tailrace.server.subscriptions.lease_tokens import CALLBACK_KIND
from tailrace.server.subscriptions.owners import NO_OWNER, Owners
from tailrace.server.subscriptions.secrets import SubscriptionSecrets
from tailrace.server.subscriptions.signatures import SIGNATURE_HEADER
from tailrace.server.subscriptions.views import callback_url, wake_stream_views

if TYPE_CHECKING:
    from tailrace.server.subscriptions.webhook_client import WebhookClient

__all__ = ["ATTEMPTS_MAX", "HOST_ATTEMPTS_MAX", "WebhookSender"]

ATTEMPTS_MAX: Final = 256
"""Concurrent attempts in total."""
HOST_ATTEMPTS_MAX: Final = 8
"""Concurrent attempts to one host and port."""

_Key: TypeAlias = tuple[bytes, str]

log = structlog.get_logger("tailrace")


class WebhookSender:
    """Sends the wakes of webhook subscriptions."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        secrets: SubscriptionSecrets,
        owners: Owners,
        networks: Networks,
        results: dict[str, int],
    ) -> None:
        """`results` counts attempts, for the metrics."""
        self._subscriptions = subscriptions
        self._secrets = secrets
        self._owners = owners
        self._networks = networks
        self._results = results
        self._client: asyncio.Task[WebhookClient] | None = None
        # The wakes that wait, by subscription; and the order in which each host gets its own.
        self._due: dict[_Key, WakeDelivery] = {}
        self._waiting: dict[str, deque[_Key]] = {}
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._busy: dict[str, int] = {}
        self._count = 0
        self._is_closed = False
        subscriptions.start(self.wake)

    def wake(self, delivery: WakeDelivery) -> None:
        """A wake is due: send it as soon as there is room."""
        if self._is_closed:
            return
        key = delivery.scope, delivery.id
        if (task := self._running.get(key)) is not None:
            task.cancel()
        waits = key in self._due
        self._due[key] = delivery
        if not waits:
            self._waiting.setdefault(_host(delivery), deque()).append(key)
        self._start_next()

    def _start_next(self) -> None:
        """Start what there is room for, one wake of each host after the other."""
        started = True
        while started and self._count < ATTEMPTS_MAX:
            started = False
            for host in list(self._waiting):
                if self._count >= ATTEMPTS_MAX:
                    break
                if self._busy.get(host, 0) < HOST_ATTEMPTS_MAX:
                    started = self._start(host) or started

    def _start(self, host: str) -> bool:
        # Put back at the end below: hosts take turns.
        keys = self._waiting.pop(host)
        # A subscription whose older attempt is still being cancelled waits for its end.
        for _ in range(len(keys)):
            key = keys.popleft()
            if key not in self._running:
                break
            keys.append(key)
        else:
            self._waiting[host] = keys
            return False
        if keys:
            self._waiting[host] = keys
        delivery = self._due.pop(key)
        self._count += 1
        self._busy[host] = self._busy.get(host, 0) + 1
        task = asyncio.get_running_loop().create_task(self._deliver(delivery))
        self._running[key] = task
        task.add_done_callback(lambda _: self._ended(key, host))
        return True

    def _ended(self, key: _Key, host: str) -> None:
        del self._running[key]
        self._count -= 1
        self._busy[host] -= 1
        if not self._busy[host]:
            del self._busy[host]
        if not self._is_closed:
            self._start_next()

    def _current(self, delivery: WakeDelivery) -> WakeDelivery | None:
        """The delivery as it is to be sent now: it may have waited long. None if it is over."""
        try:
            state = self._subscriptions.find(delivery.scope, delivery.id)
        except Refusal:
            return None
        if state.wake_id != delivery.state.wake_id:
            return None
        prefix = delivery.scope + b"\0"
        streams = [
            stream
            for stream in delivery.streams
            if not self._owners.guarded
            or self._owners.readable(state.owner, prefix + stream.path.encode())
        ]
        return delivery._replace(state=state, streams=streams)

    async def _deliver(self, queued: WakeDelivery) -> None:
        delivery = self._current(queued)
        if delivery is None:
            return
        subscriptions = self._subscriptions
        if self._owners.guarded and self._owners.principal(delivery.state.owner) is None:
            subscriptions.failed(delivery, NO_OWNER)
            return
        try:
            client = await self._started_client()
            body = await self._body(delivery)
            signer = await self._secrets.signer()
            headers = {SIGNATURE_HEADER: signer.sign(body, self._secrets.now_s())}
            result = await client.post(delivery.state.config.webhook_url or "", body, headers)
        except Exception as error:
            log.error("a webhook could not be sent", subscription=delivery.id, exc_info=error)
            subscriptions.failed(delivery, "internal error: see the log of the server")
            return
        self._results["failed" if result.error else "accepted"] += 1
        if result.error:
            subscriptions.failed(delivery, result.error)
        else:
            subscriptions.delivered(delivery, done=result.done)

    async def _body(self, delivery: WakeDelivery) -> bytes:
        scope, id_, state = delivery.scope, delivery.id, delivery.state
        tokens = await self._secrets.tokens()
        content = {
            "subscription_id": id_,
            "wake_id": state.wake_id,
            "generation": state.generation,
            "streams": wake_stream_views(delivery.streams),
            "callback_url": callback_url(self._owners.origin(state.owner), scope, id_),
            "callback_token": tokens.issue(CALLBACK_KIND, scope, id_, state.id, state.generation),
        }
        return msgspec.json.encode(content)

    async def _started_client(self) -> "WebhookClient":
        if self._client is None:
            self._client = asyncio.get_running_loop().create_task(self._make_client())
        # One caller that is cancelled must not cancel it for the others.
        return await asyncio.shield(self._client)

    async def _make_client(self) -> "WebhookClient":
        # In a thread: importing aiohttp takes long enough to be noticed.
        module = "tailrace.server.subscriptions.webhook_client"
        await asyncio.to_thread(import_module, module)
        from tailrace.server.subscriptions.webhook_client import WebhookClient

        return WebhookClient(self._networks)

    async def close(self) -> None:
        """End all attempts; wakes that were not delivered are due again after a restart."""
        self._is_closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await (await self._client).close()


def _host(delivery: WakeDelivery) -> str:
    return urlsplit(delivery.state.config.webhook_url or "").netloc.lower()
