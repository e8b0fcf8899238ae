"""`Subscription`: one subscription, and a worker loop with heartbeats in a thread."""

import logging
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

from tailrace.client.errors import TailraceError
from tailrace.client.handle import BaseSubscription, BaseSubscriptions
from tailrace.client.subscription import SubscriptionFlows
from tailrace.client.subscription_values import ClaimedWake
from tailrace.client.sync.driver import Driver
from tailrace.client.worker import BaseWake, default_worker

__all__ = ["Subscription", "Subscriptions", "Wake"]

_log = logging.getLogger("tailrace.client")


class Wake(BaseWake):
    """A wake that `Subscription.work` gives: its streams, and how far they were processed."""

    def __init__(self, driver: Driver, flows: SubscriptionFlows, claim: ClaimedWake) -> None:
        super().__init__(flows, claim)
        self._driver = driver

    def ack(self, offsets: Mapping[str, str]) -> None:
        """
        Acknowledge the offsets that were reached, by path of the stream.

        Then the end of the loop's body acknowledges nothing more.

        Raises:
            Conflict: The lease has ended, or an offset is not possible. Nothing was acknowledged.
        """
        self._driver.run(self._acknowledge(offsets))

    @contextmanager
    def _heartbeats(self) -> Iterator[None]:
        ended = threading.Event()

        def beat() -> None:
            while not self.lost and not ended.wait(self._heartbeat_s):
                try:
                    self._driver.run(self._heartbeat())
                except Exception as error:
                    _log.warning("the heartbeat of a wake failed: %s", error)

        thread = threading.Thread(target=beat, name="tailrace-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class Subscription(BaseSubscription[Driver], driver=Driver):
    """One subscription at its URL; made by `Client.subscription` or `Bucket.subscription`."""

    def work(self, worker: str | None = None, *, wait: bool = True) -> Generator[Wake, None, None]:
        """
        Claim the wakes of a pull-wake subscription one after the other, and wait for the next.

        The lease of a wake is extended in the background while the loop's body runs. The end of the
        body acknowledges the wake; an exception or `break` gives it back.

        Args:
            worker: A name that other workers see; by default the host and the process.
            wait: Without it, the loop ends when there is nothing to claim.

        Raises:
            NotFound: There is no such subscription.
        """
        flows, name = self._flows, worker or default_worker()
        while claim := self._driver.run(flows.next_claim(name, wait=wait)):
            wake = Wake(self._driver, flows, claim)
            try:
                with wake._heartbeats():
                    yield wake
            except BaseException:
                try:
                    self._driver.run(wake._give_back())
                except TailraceError as error:
                    # The lease expires by itself.
                    _log.warning("a wake could not be given back: %s", error)
                raise
            self._driver.run(wake._finish())
            if wake.lost:
                _log.warning("the lease of a wake ended before it was acknowledged")


class Subscriptions(BaseSubscriptions[Driver], driver=Driver):
    """The subscriptions of a server or a bucket; `Client.subscriptions`."""
