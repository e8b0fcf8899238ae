"""
A naive model of subscriptions: every link of every stream is written down, and all is recomputed.

It knows nothing of rows that are left out, of indexes, batches or disks. Messages of streams are
one byte each, and all paths have the same length, so that offsets can be told in advance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Model", "ModelStream", "ModelSubscription", "Position", "event_bytes"]

Position = tuple[int, int]
ZERO: Position = (0, 0)
LEASE_MS = 1000


def event_bytes(name: str, path: str, generation: int, now: int) -> int:
    event = (
        f'{{"type":"wake","subscription_id":"{name}","stream":"{path}",'
        f'"generation":{generation},"ts":{now}}}'
    )
    return len(event)


@dataclass
class ModelStream:
    tail: Position = ZERO
    number: int = 0
    """Streams that are created again have another one."""
    is_fork: bool = False
    was_forked: bool = False


@dataclass
class ModelLink:
    explicit: bool
    acked: Position
    number: int


@dataclass
class ModelSubscription:
    name: str
    pattern: re.Pattern[str] | None
    wake_stream: str | None
    """None: a webhook."""
    links: dict[str, ModelLink] = field(default_factory=dict)
    generation: int = 0
    phase: str = "idle"
    holder: str | None = None
    lease_until: int | None = None
    retry_at: int | None = None
    unanswered: bool = False
    """A retry is scheduled, at a time that the model does not know yet."""

    def end(self) -> None:
        self.phase, self.holder, self.lease_until, self.retry_at = "idle", None, None, None
        self.unanswered = False


class Model:
    def __init__(self, now: int) -> None:
        self.now = now
        self.streams: dict[str, ModelStream] = {}
        # Paths that may be soft-deleted: they are not used again.
        self.taken: set[str] = set()
        self.subscriptions: dict[str, ModelSubscription] = {}
        self._events: list[tuple[ModelSubscription, int]] = []
        self._numbers = 0

    # -- streams -----------------------------------------------------------------------------

    def append(self, path: str, size: int = 1) -> None:
        stream = self.create(path)
        stream.tail = (stream.tail[0] + 1, stream.tail[1] + size)
        self.settle()

    def create(self, path: str) -> ModelStream:
        if path not in self.streams:
            self._numbers += 1
            self.streams[path] = ModelStream(number=self._numbers)
            for subscription in self.subscriptions.values():
                if path in subscription.links:
                    subscription.links[path].number = self._numbers
                elif self._matches(subscription, path):
                    subscription.links[path] = ModelLink(False, ZERO, self._numbers)
        return self.streams[path]

    def fork(self, path: str, source: str) -> bool:
        """Fork a stream at its tail; returns whether that is possible."""
        if source not in self.streams or path in self.streams or path in self.taken:
            return False
        stream = self.create(path)
        stream.tail, stream.is_fork = self.streams[source].tail, True
        self.streams[source].was_forked = True
        self.settle()
        return True

    def delete(self, path: str) -> bool:
        stream = self.streams.pop(path, None)
        if stream is None:
            return False
        if stream.was_forked:
            self.taken.add(path)
        for subscription in self.subscriptions.values():
            subscription.links.pop(path, None)
        self.settle()
        return True

    def _matches(self, subscription: ModelSubscription, path: str) -> bool:
        pattern = subscription.pattern
        return pattern is not None and pattern.fullmatch(path) is not None

    # -- wakes -------------------------------------------------------------------------------

    def pending(self, subscription: ModelSubscription) -> list[str]:
        return [
            path
            for path, link in subscription.links.items()
            if path in self.streams and self.streams[path].tail > link.acked
        ]

    def settle(self) -> None:
        """No work is without a wake, and no unclaimed wake without work."""
        for subscription in self.subscriptions.values():
            self._settle(subscription)

    def _settle(self, subscription: ModelSubscription) -> bool:
        is_pull = subscription.wake_stream is not None
        is_retried = subscription.retry_at is not None or subscription.unanswered
        if not self.pending(subscription):
            if subscription.phase == "waking" and (is_pull or is_retried):
                subscription.end()
            return False
        if subscription.phase != "idle":
            return False
        subscription.generation += 1
        subscription.phase = "waking"
        if is_pull:
            self._events.append((subscription, subscription.generation))
        else:
            subscription.lease_until = self.now + LEASE_MS
        return True

    def flush(self) -> None:
        """Events of wakes are written at the end of a turn."""
        while self._events:
            subscription, generation = self._events.pop(0)
            if self.subscriptions.get(subscription.name) is not subscription:
                continue
            if subscription.generation != generation:
                continue
            path = subscription.wake_stream
            if subscription.phase != "idle" and path is not None and path in self.streams:
                size = event_bytes(subscription.name, path, subscription.generation, self.now)
                self.append(path, size)

    # -- commands ----------------------------------------------------------------------------

    def subscribe(
        self, name: str, pattern: str | None, streams: Iterable[str], wake_stream: str | None
    ) -> str:
        if name in self.subscriptions:
            return "same"
        compiled = None if pattern is None else re.compile(pattern)
        subscription = ModelSubscription(name, compiled, wake_stream)
        for path in streams:
            self._link(subscription, path)
        for path, stream in self.streams.items():
            if path not in subscription.links and self._matches(subscription, path):
                subscription.links[path] = ModelLink(False, stream.tail, stream.number)
        self.subscriptions[name] = subscription
        return "created"

    def _link(self, subscription: ModelSubscription, path: str) -> None:
        link = subscription.links.get(path)
        if link is not None:
            link.explicit = True
            return
        stream = self.streams.get(path, ModelStream())
        subscription.links[path] = ModelLink(True, stream.tail, stream.number)

    def unsubscribe(self, name: str) -> str:
        return "deleted" if self.subscriptions.pop(name, None) is not None else "absent"

    def link(self, name: str, path: str) -> str:
        if name not in self.subscriptions:
            return "SUBSCRIPTION_NOT_FOUND"
        self._link(self.subscriptions[name], path)
        return "done"

    def unlink(self, name: str, path: str) -> str:
        subscription = self.subscriptions.get(name)
        if subscription is None:
            return "SUBSCRIPTION_NOT_FOUND"
        link = subscription.links.get(path)
        if link is not None and link.explicit:
            link.explicit = False
            if path not in self.streams or not self._matches(subscription, path):
                del subscription.links[path]
            self.settle()
        return "done"

    def claim(self, name: str, worker: str) -> str:
        subscription = self.subscriptions.get(name)
        if subscription is None:
            return "SUBSCRIPTION_NOT_FOUND"
        if subscription.wake_stream is None:
            return "INVALID_REQUEST"
        if subscription.phase == "leased":
            return "ALREADY_CLAIMED"
        if not self.pending(subscription):
            return "NO_PENDING_WORK"
        subscription.phase, subscription.holder = "leased", worker
        subscription.lease_until = self.now + LEASE_MS
        return f"claimed {subscription.generation}"

    def _has_worker(self, subscription: ModelSubscription) -> bool:
        is_webhook = subscription.wake_stream is None
        return subscription.phase == "leased" or (is_webhook and subscription.phase == "waking")

    def ack(
        self, name: str, acks: list[tuple[str, Position]], *, done: bool, is_stale: bool
    ) -> str:
        subscription = self.subscriptions.get(name)
        if subscription is None:
            return "SUBSCRIPTION_NOT_FOUND"
        if is_stale or not self._has_worker(subscription):
            return "FENCED"
        for path, position in acks:
            link = subscription.links.get(path)
            tail = self.streams.get(path, ModelStream()).tail
            if link is None or not link.acked <= position <= tail:
                return "INVALID_OFFSET"
        for path, position in acks:
            subscription.links[path].acked = position
        self.extend(subscription)
        if not done:
            return "acked False"
        subscription.end()
        return f"acked {self._settle(subscription)}"

    def release(self, name: str, *, is_stale: bool) -> str:
        subscription = self.subscriptions.get(name)
        if subscription is None:
            return "SUBSCRIPTION_NOT_FOUND"
        if is_stale or not self._has_worker(subscription):
            return "FENCED"
        subscription.end()
        self._settle(subscription)
        return "released"

    def extend(self, subscription: ModelSubscription) -> None:
        subscription.phase, subscription.retry_at = "leased", None
        subscription.lease_until = self.now + LEASE_MS
        subscription.unanswered = False

    # -- webhooks and time -------------------------------------------------------------------

    def is_delivering(self, subscription: ModelSubscription, generation: int) -> bool:
        return (
            subscription.phase == "waking"
            and subscription.generation == generation
            and subscription.retry_at is None
        )

    def is_leased(self, subscription: ModelSubscription, generation: int) -> bool:
        return subscription.phase == "leased" and subscription.generation == generation

    def told(self, subscription: ModelSubscription, tails: dict[str, tuple[int, Position]]) -> None:
        """A webhook is done with what it was told: the number of each stream, and its tail."""
        for path, (number, tail) in tails.items():
            link = subscription.links.get(path)
            stream = self.streams.get(path)
            if link is not None and stream is not None and stream.number == number:
                link.acked = max(link.acked, tail)
        subscription.end()
        self._settle(subscription)

    def fail(self, subscription: ModelSubscription) -> None:
        subscription.lease_until = None
        subscription.unanswered = True
        self._settle(subscription)

    def tick(self) -> None:
        for subscription in self.subscriptions.values():
            if subscription.retry_at is not None and subscription.retry_at <= self.now:
                subscription.retry_at = None
                subscription.lease_until = self.now + LEASE_MS
            elif subscription.lease_until is not None and subscription.lease_until <= self.now:
                is_unanswered = subscription.wake_stream is None and subscription.phase == "waking"
                subscription.end()
                if self._settle(subscription) and is_unanswered:
                    self.fail(subscription)

    def restart(self) -> None:
        for subscription in self.subscriptions.values():
            if subscription.wake_stream is None and subscription.phase == "waking":
                if subscription.retry_at is not None:
                    continue
                assert subscription.lease_until is not None
                if not self.pending(subscription) or subscription.lease_until <= self.now:
                    subscription.end()
                    self._settle(subscription)
                else:
                    subscription.lease_until = self.now + LEASE_MS
