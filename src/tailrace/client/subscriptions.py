"""The subscriptions of a server or a bucket by their ids, as flows."""

from collections.abc import Iterable, Mapping
from typing import Any

from tailrace.client.flow import Flow, Give, Items
from tailrace.client.subscription import SubscriptionFlows, SubscriptionResource
from tailrace.client.subscription_values import ClaimedWake, SubscriptionInfo, parse_subscription

__all__ = ["SubscriptionsFlows"]


class SubscriptionsFlows(SubscriptionResource):
    """The subscriptions of a bucket, or of the base surface, by their ids."""

    def one(self, subscription_id: str) -> SubscriptionFlows:
        return SubscriptionFlows(self.url, subscription_id, self.options)

    def list(self) -> Items[SubscriptionInfo]:
        """The subscriptions by their ids, without their streams, fetched page by page."""
        after = ""
        while True:
            params = {"after": after} if after else {}
            make = self._request("GET", "/__ds/subscriptions", params)
            found, after = yield from self._get_json(make, _parse_page, 200)
            yield Give(found)
            if not after:
                return

    def create(
        self,
        subscription_id: str,
        *,
        pattern: str | None = None,
        streams: Iterable[str] = (),
        webhook: str | None = None,
        wake_stream: str | None = None,
        lease_ttl_ms: int | None = None,
        description: str | None = None,
    ) -> Flow[SubscriptionInfo]:
        """As `Subscription.create`."""
        return self.one(subscription_id).create(
            pattern=pattern,
            streams=streams,
            webhook=webhook,
            wake_stream=wake_stream,
            lease_ttl_ms=lease_ttl_ms,
            description=description,
        )

    def get(self, subscription_id: str) -> Flow[SubscriptionInfo]:
        """As `Subscription.get`."""
        return self.one(subscription_id).get()

    def delete(self, subscription_id: str) -> Flow[None]:
        """As `Subscription.delete`."""
        return self.one(subscription_id).delete()

    def add_streams(self, subscription_id: str, paths: Iterable[str]) -> Flow[None]:
        """As `Subscription.add_streams`."""
        return self.one(subscription_id).add_streams(paths)

    def remove_stream(self, subscription_id: str, path: str) -> Flow[None]:
        """As `Subscription.remove_stream`."""
        return self.one(subscription_id).remove_stream(path)

    def claim(self, subscription_id: str, worker: str) -> Flow[ClaimedWake]:
        """As `Subscription.claim`."""
        return self.one(subscription_id).claim(worker)

    def ack(
        self,
        subscription_id: str,
        claim: ClaimedWake,
        offsets: Mapping[str, str] | None = None,
        *,
        done: bool = False,
    ) -> Flow[bool]:
        """As `Subscription.ack`."""
        return self.one(subscription_id).ack(claim, offsets, done=done)

    def release(self, subscription_id: str, claim: ClaimedWake) -> Flow[None]:
        """As `Subscription.release`."""
        return self.one(subscription_id).release(claim)


def _parse_page(page: Mapping[str, Any]) -> tuple[list[SubscriptionInfo], str]:
    found = [parse_subscription(item) for item in page["subscriptions"]]
    return found, (page["next_cursor"] or "") if page["has_more"] else ""
