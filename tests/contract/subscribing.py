"""Subscriptions driven from plain functions, for tests over every store."""

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from tailrace.engine.subscriptions.subscriptions import Claim, SubscriptionView, WakeDelivery
from tailrace.protocol.subscription import SubscriptionConfig, SubscriptionState
from tests.contract.harness import World

__all__ = ["Subscriber", "pull", "webhook"]

T = TypeVar("T")

WAKES = "wakes"


def pull(pattern: str | None = "e/*", **options: Any) -> SubscriptionConfig:
    options.setdefault("wake_stream", WAKES)
    return SubscriptionConfig(type="pull-wake", pattern=pattern, **options)


def webhook(pattern: str | None = "e/*", **options: Any) -> SubscriptionConfig:
    url = "https://example.com/hook"
    return SubscriptionConfig(type="webhook", pattern=pattern, webhook_url=url, **options)


class Subscriber:
    """The subscriptions of a world; `deliveries` has what webhooks were sent."""

    def __init__(self, world: World, scope: bytes = b"") -> None:
        self.world = world
        self.scope = scope
        self.deliveries: list[WakeDelivery] = []

    def start(self) -> None:
        """Begin to deliver webhooks."""

        async def work() -> None:
            self.world.engine.subscriptions.start(self.deliveries.append)

        self.world.run(work())
        self.settle()

    def settle(self) -> None:
        """Until all is durable, and what is due is delivered."""
        self.world.settle()
        tasks = self.world.engine.subscriptions.wakes._tasks
        self.world.until(lambda: not tasks)
        self.world.settle()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        result = self.world.run(work)
        self.settle()
        return result

    def key(self, path: str) -> bytes:
        return self.scope + b"\0" + path.encode()

    def append(self, path: str, body: bytes = b"x") -> str:
        """Append to a stream, creating it if need be; returns its tail."""
        key = self.key(path)
        if self.world.engine.stream(key).state is None:
            tail = self.world.create(key, body=body).tail.token()
        else:
            tail = self.world.append(key, body).tail.token()
        self.settle()
        return tail

    def create(
        self, name: str, config: SubscriptionConfig, owner: bytes | None = None
    ) -> SubscriptionView:
        subscriptions = self.world.engine.subscriptions
        return self._run(subscriptions.create(self.scope, name, config, owner))

    def view(self, name: str) -> SubscriptionView:
        return self._run(self.world.engine.subscriptions.view(self.scope, name))

    def state(self, name: str) -> SubscriptionState:
        return self.view(name).state

    def cursors(self, name: str) -> dict[str, str]:
        return {stream.path: stream.acked_offset for stream in self.view(name).streams}

    def delete(self, name: str) -> bool:
        return self._run(self.world.engine.subscriptions.delete(self.scope, name))

    def link(self, name: str, *paths: str) -> None:
        self._run(self.world.engine.subscriptions.link(self.scope, name, paths))

    def unlink(self, name: str, path: str) -> None:
        self._run(self.world.engine.subscriptions.unlink(self.scope, name, path))

    def claim(self, name: str, worker: str = "w") -> Claim:
        return self._run(self.world.engine.subscriptions.claim(self.scope, name, worker))

    def ack(
        self,
        name: str,
        wake: Claim | WakeDelivery,
        acks: Sequence[tuple[str, str]] = (),
        *,
        done: bool = False,
    ) -> bool:
        told = wake if isinstance(wake, Claim) else wake.state
        subscriptions = self.world.engine.subscriptions
        work = subscriptions.ack(self.scope, name, told.wake_id, told.generation, acks, done=done)
        return self._run(work)

    def release(self, name: str, wake: Claim) -> None:
        subscriptions = self.world.engine.subscriptions
        self._run(subscriptions.release(self.scope, name, wake.wake_id, wake.generation))

    def delivered(self, delivery: WakeDelivery, *, done: bool) -> None:
        async def work() -> None:
            self.world.engine.subscriptions.delivered(delivery, done=done)

        self._run(work())

    def failed(self, delivery: WakeDelivery, error: str = "503") -> None:
        async def work() -> None:
            self.world.engine.subscriptions.failed(delivery, error)

        self._run(work())

    def tick(self, ms: int) -> None:
        """Let time pass, and the timer run."""
        self.world.now += ms

        async def work() -> None:
            self.world.engine.subscriptions.wakes.tick()

        self._run(work())
