"""`Client`: the streams of a server, by blocking calls."""

from typing import Any

from tailrace.client.batch_queue import ProducerOptions
from tailrace.client.handle import BaseBucket, BaseClient, BaseStream, constructs
from tailrace.client.requests import base_url
from tailrace.client.subscription import SubscriptionFlows
from tailrace.client.subscriptions import SubscriptionsFlows
from tailrace.client.sync.driver import Driver
from tailrace.client.sync.producer import Producer
from tailrace.client.sync.worker import Subscription, Subscriptions

__all__ = ["Bucket", "Client", "Stream"]


class Stream(BaseStream[Driver], driver=Driver):
    """One stream at its URL; made by `Client.stream` or `Bucket.stream`."""

    producer = constructs(ProducerOptions, Producer)


class Bucket(BaseBucket[Driver, Stream], driver=Driver):
    """One bucket at its URL; made by `Client.bucket`."""

    _stream_type = Stream

    def subscription(self, subscription_id: str) -> Subscription:
        """A subscription of this bucket."""
        flows = SubscriptionFlows(self.url, subscription_id, self._flows.options)
        return Subscription(self._driver, flows)

    @property
    def subscriptions(self) -> Subscriptions:
        """All subscriptions of this bucket."""
        return Subscriptions(self._driver, SubscriptionsFlows(self.url, self._flows.options))


class Client(BaseClient[Driver, Stream, Bucket], driver=Driver):
    """
    The streams of a server. Safe to share between threads; `with` closes its connections.

    Args:
        url: The URL of the server, with a path only if the server is mounted below one.
        headers, params: Sent with every request; a value may be a callable, which is called before
            each request, for example for a fresh token.
        retry: How often a failed request is retried, and after which pauses.
        timeout_s: The longest time without data before a request counts as lost.
    """

    _driver_type = Driver
    _stream_type = Stream
    _bucket_type = Bucket

    def subscription(self, subscription_id: str) -> Subscription:
        """A subscription of the base surface, to streams at `/v1/stream/{path}`."""
        flows = SubscriptionFlows(base_url(self.url), subscription_id, self._flows.options)
        return Subscription(self._driver, flows)

    @property
    def subscriptions(self) -> Subscriptions:
        """All subscriptions of the base surface."""
        flows = SubscriptionsFlows(base_url(self.url), self._flows.options)
        return Subscriptions(self._driver, flows)

    def close(self) -> None:
        """Close the idle connections."""
        self._driver.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()
