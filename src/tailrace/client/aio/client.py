"""`AsyncClient`: the streams of a server, for asyncio."""

from typing import Any

from tailrace.client.aio.driver import AsyncDriver
from tailrace.client.aio.producer import AsyncProducer
from tailrace.client.aio.worker import AsyncSubscription, AsyncSubscriptions
from tailrace.client.batch_queue import ProducerOptions
from tailrace.client.handle import BaseBucket, BaseClient, BaseStream, constructs
from tailrace.client.requests import base_url
from tailrace.client.subscription import SubscriptionFlows
from tailrace.client.subscriptions import SubscriptionsFlows

__all__ = ["AsyncBucket", "AsyncClient", "AsyncStream"]


class AsyncStream(BaseStream[AsyncDriver], driver=AsyncDriver):
    """One stream at its URL; made by `AsyncClient.stream` or `AsyncBucket.stream`."""

    producer = constructs(ProducerOptions, AsyncProducer)


class AsyncBucket(BaseBucket[AsyncDriver, AsyncStream], driver=AsyncDriver):
    """One bucket at its URL; made by `AsyncClient.bucket`."""

    _stream_type = AsyncStream

    def subscription(self, subscription_id: str) -> AsyncSubscription:
        """A subscription of this bucket."""
        flows = SubscriptionFlows(self.url, subscription_id, self._flows.options)
        return AsyncSubscription(self._driver, flows)

    @property
    def subscriptions(self) -> AsyncSubscriptions:
        """All subscriptions of this bucket."""
        return AsyncSubscriptions(self._driver, SubscriptionsFlows(self.url, self._flows.options))


class AsyncClient(BaseClient[AsyncDriver, AsyncStream, AsyncBucket], driver=AsyncDriver):
    """
    The streams of a server, for one event loop; `async with` closes its connections.

    The arguments are those of `Client`.
    """

    _driver_type = AsyncDriver
    _stream_type = AsyncStream
    _bucket_type = AsyncBucket

    def subscription(self, subscription_id: str) -> AsyncSubscription:
        """A subscription of the base surface, to streams at `/v1/stream/{path}`."""
        flows = SubscriptionFlows(base_url(self.url), subscription_id, self._flows.options)
        return AsyncSubscription(self._driver, flows)

    @property
    def subscriptions(self) -> AsyncSubscriptions:
        """All subscriptions of the base surface."""
        flows = SubscriptionsFlows(base_url(self.url), self._flows.options)
        return AsyncSubscriptions(self._driver, flows)

    async def close(self) -> None:
        """Close all connections."""
        await self._driver.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.close()
