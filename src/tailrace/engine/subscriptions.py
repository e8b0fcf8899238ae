"""
Subscriptions over the engine's streams: their commands, and what an append owes them.

Every command is decided at once, before the first `await`, upon states that may run ahead of the
disk. It returns, or raises its refusal, when the batch that holds the outcome is durable.

A scope is a surface: `b""` is the base surface, anything else the id of a bucket. Paths are those
of streams within the scope, valid names without surrounding slashes.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.protocol.subscription import LinkedStream, SubscriptionConfig, SubscriptionState

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["Claim", "Delivery", "SubscriptionView", "Subscriptions"]


class SubscriptionView(NamedTuple):
    """A subscription as clients see it."""

    id: str
    state: SubscriptionState
    streams: list[LinkedStream]
    is_cut: bool
    """There are more streams than those listed, or more may match."""
    created: bool = False
    """This request created it."""


class Claim(NamedTuple):
    """A wake that a worker has claimed."""

    wake_id: str
    generation: int
    lease_ttl_ms: int
    streams: list[LinkedStream]


class Delivery(NamedTuple):
    """A wake that must be sent to a webhook now, for the first time or again."""

    scope: bytes
    id: str
    state: SubscriptionState
    """Has the configuration, the owner, the wake id and the generation."""
    streams: list[LinkedStream]
    """Those to be told: pending ones first. Give them back to `delivered`."""


class Subscriptions:
    """All subscriptions; they are in memory, and stored with each change."""

    readable: Callable[[bytes | None, bytes], bool] | None = None
    """Whether an owner may read the stream of a key. Streams that it may not read do not wake."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def start(self, on_wake: Callable[[Delivery], None]) -> None:
        """Begin to deliver webhooks. Each call of `on_wake` owes one `delivered` or `failed`."""
        raise NotImplementedError

    def rights_changed(self) -> None:
        """`readable` may return something else from now on."""
        raise NotImplementedError

    async def create(
        self, scope: bytes, subscription_id: str, config: SubscriptionConfig, owner: bytes | None
    ) -> SubscriptionView:
        """
        Create a subscription, or confirm one of the same configuration.

        Raises:
            InvalidSubscription: The configuration is not valid.
            SubscriptionExists: It exists with another configuration.
            BucketNotFound: The scope does not exist.
        """
        raise NotImplementedError

    async def view(self, scope: bytes, subscription_id: str) -> SubscriptionView:
        """A subscription with its streams. Raises SubscriptionNotFound."""
        raise NotImplementedError

    def find(self, scope: bytes, subscription_id: str) -> SubscriptionState:
        """Its state, for checks of a request. Raises SubscriptionNotFound."""
        raise NotImplementedError

    def page(
        self, scope: bytes, after: str, count_max: int
    ) -> tuple[list[tuple[str, SubscriptionState]], bool]:
        """Subscriptions of a scope by their ids, and whether there are more."""
        raise NotImplementedError

    async def delete(self, scope: bytes, subscription_id: str) -> bool:
        """Delete a subscription; returns whether there was one."""
        raise NotImplementedError

    async def link(self, scope: bytes, subscription_id: str, paths: Sequence[str]) -> None:
        """Link streams explicitly, at their tails. Raises SubscriptionNotFound."""
        raise NotImplementedError

    async def unlink(self, scope: bytes, subscription_id: str, path: str) -> None:
        """Remove an explicit link, if there is one. Raises SubscriptionNotFound."""
        raise NotImplementedError

    async def claim(self, scope: bytes, subscription_id: str, worker: str) -> Claim:
        """
        Claim the pending work of a pull-wake subscription.

        Raises:
            SubscriptionNotFound, InvalidSubscription, AlreadyClaimed, NoPendingWork: It cannot be.
        """
        raise NotImplementedError

    async def ack(
        self,
        scope: bytes,
        subscription_id: str,
        wake_id: str,
        generation: int,
        acks: Sequence[tuple[str, str]] = (),
        *,
        done: bool = False,
    ) -> bool:
        """
        Callback and ack: move cursors, then extend the lease, or end the wake if `done`.

        `acks` are paths and offset tokens. Returns whether another wake was issued.

        Raises:
            SubscriptionNotFound, Fenced, InvalidAck: Nothing was acknowledged.
        """
        raise NotImplementedError

    async def release(
        self, scope: bytes, subscription_id: str, wake_id: str, generation: int
    ) -> None:
        """End a wake without acknowledging anything. Raises SubscriptionNotFound, Fenced."""
        raise NotImplementedError

    def delivered(self, delivery: Delivery, *, done: bool) -> None:
        """A webhook answered with 2xx; `done` acknowledges the tails that it was told."""
        raise NotImplementedError

    def failed(self, delivery: Delivery, error: str) -> None:
        """A webhook did not answer with 2xx: it is tried again later."""
        raise NotImplementedError

    async def secret(self, name: str) -> bytes:
        """32 random bytes that are made once and kept: for keys. Durable when this returns."""
        raise NotImplementedError
