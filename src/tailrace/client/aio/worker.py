"""`AsyncSubscription`: one subscription, and a worker loop with heartbeats in a task."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tailrace.client.aio.driver import AsyncDriver
from tailrace.client.errors import TailraceError
from tailrace.client.handle import BaseSubscription, BaseSubscriptions
from tailrace.client.subscription import SubscriptionFlows
from tailrace.client.subscription_values import ClaimedWake
from tailrace.client.worker import BaseWake, default_worker

__all__ = ["AsyncSubscription", "AsyncSubscriptions", "AsyncWake"]

_log = logging.getLogger("tailrace.client")


class AsyncWake(BaseWake):
    """A wake that `AsyncSubscription.work` gives."""

    def __init__(self, driver: AsyncDriver, flows: SubscriptionFlows, claim: ClaimedWake) -> None:
        super().__init__(flows, claim)
        self._driver = driver

    async def ack(self, offsets: Mapping[str, str]) -> None:
        """As `Wake.ack`."""
        await self._driver.run(self._acknowledge(offsets))

    @asynccontextmanager
    async def _heartbeats(self) -> AsyncIterator[None]:
        async def beat() -> None:
            while not self.lost:
                await asyncio.sleep(self._heartbeat_s)
                try:
                    await self._driver.run(self._heartbeat())
                except Exception as error:
                    _log.warning("the heartbeat of a wake failed: %s", error)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class AsyncSubscription(BaseSubscription[AsyncDriver], driver=AsyncDriver):
    """One subscription; made by `AsyncClient.subscription` or `AsyncBucket.subscription`."""

    async def work(
        self, worker: str | None = None, *, wait: bool = True
    ) -> AsyncGenerator[AsyncWake, None]:
        """
        As `Subscription.work`.

        After an exception or `break` the wake is given back when the iterator is closed, which
        `contextlib.aclosing` does at once.
        """
        flows, name = self._flows, worker or default_worker()
        while claim := await self._driver.run(flows.next_claim(name, wait=wait)):
            wake = AsyncWake(self._driver, flows, claim)
            try:
                async with wake._heartbeats():
                    yield wake
            except BaseException:
                try:
                    await self._driver.run(wake._give_back())
                except (TailraceError, RuntimeError) as error:
                    # The client was closed before: the lease expires by itself.
                    _log.warning("a wake could not be given back: %s", error)
                raise
            await self._driver.run(wake._finish())
            if wake.lost:
                _log.warning("the lease of a wake ended before it was acknowledged")


class AsyncSubscriptions(BaseSubscriptions[AsyncDriver], driver=AsyncDriver):
    """The subscriptions of a server or a bucket; `AsyncClient.subscriptions`."""
