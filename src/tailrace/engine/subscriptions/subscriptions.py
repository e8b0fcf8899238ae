"""
Subscriptions over the engine's streams: their commands, and what an append owes them.

Every command is decided at once, before the first `await`, upon states that may run ahead of the
disk. It returns, or raises its refusal, when the batch that holds the outcome is durable.

A scope is a surface: `b""` is the base surface, anything else the id of a bucket. Paths are those
of streams within the scope, valid names without surrounding slashes.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tailrace.engine.entry import StreamEntry
from tailrace.engine.errors import StorageFailed
from tailrace.engine.subscriptions.acks import check_acks, told_tails
from tailrace.engine.subscriptions.entry import (
    Claim,
    SubscriptionEntry,
    SubscriptionView,
    WakeDelivery,
    lives,
)
from tailrace.engine.subscriptions.records import SubscriptionRecords
from tailrace.engine.subscriptions.streams import SubscriptionStreams
from tailrace.engine.subscriptions.wakes import SubscriptionWakes
from tailrace.protocol import subscription as rules
from tailrace.protocol.errors import BucketNotFound, Refusal
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import StreamState
from tailrace.protocol.subscription import Phase, SubscriptionConfig, SubscriptionState
from tailrace.protocol.subscription_errors import (
    InvalidSubscription,
    SubscriptionExists,
    SubscriptionNotFound,
)

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["Claim", "SubscriptionView", "Subscriptions", "WakeDelivery"]

ID_BYTES_MAX: Final = 256
WORKER_BYTES_MAX: Final = 512
SUBSCRIPTIONS_MAX: Final = 100_000
LINKS_MAX: Final = 100_000
"""Explicit links of one subscription."""
REQUEST_STREAMS_MAX: Final = 10_000
"""Streams that one request may link or acknowledge."""
LINK_BYTES_ABOUT: Final = 64
SECRET_BYTES: Final = 32


class Subscriptions:
    """All subscriptions; they are in memory, and stored with each change."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self.records = SubscriptionRecords(engine)
        self._streams = SubscriptionStreams(engine, self.records)
        self.wakes = SubscriptionWakes(engine, self.records, self._streams)
        # Made, and not durable yet.
        self._secrets: dict[str, bytes] = {}

    def start(self, on_wake: Callable[[WakeDelivery], None]) -> None:
        """Begin to deliver webhooks. Each call of `on_wake` owes one `delivered` or `failed`."""
        self.wakes.start(on_wake)

    def stop(self) -> None:
        """Deliver nothing more, and stop the timer."""
        self.wakes.stop()

    def set_readable(self, readable: Callable[[bytes | None, bytes], bool]) -> None:
        """
        Set who may read what: a function of an owner and the key of a stream.

        Call it again when it may return something else. A stream that the owner may not read is
        not listed, and does not wake.
        """
        self._streams.readable = readable
        self._streams.rights += 1

    def set_may_append(self, may_append: Callable[[bytes | None, bytes], bool]) -> None:
        """
        Set whose wake events are written: a function of an owner and the key of a wake stream.

        Without the right there is no event, and the work stays pending. A PUT that confirms the
        subscription writes it, once the owner has the right.
        """
        self.wakes.may_append = may_append

    # -- what streams owe ----------------------------------------------------------------------

    def changed(
        self, stream: StreamEntry, before: StreamState | None, after: StreamState | None
    ) -> None:
        """
        A record of the open batch changed a stream: links and wakes follow in the same batch.

        Without subscriptions the engine does not call this, see `Engine._record`.
        """
        if stream.watchers_version != self.records.version:
            stream.watchers = self.records.index.watchers(stream.key)
            stream.watchers_version = self.records.version
        if not stream.watchers:
            return
        if not lives(after):
            if lives(before):
                self._deleted(stream)
            return
        assert after is not None
        tail = START if before is None else before.tail
        if after.tail != tail:
            self._appended(stream, after.id, tail)

    def _appended(self, stream: StreamEntry, stream_id: int, tail: Offset) -> None:
        path = stream.key.partition(b"\0")[2]
        for entry in stream.watchers:
            if path in entry.cursors or not self._streams.is_readable(entry, stream.key):
                continue
            self.records.move(entry, path, entry.caught_up(path, stream_id, tail))
            self.wakes.settle(entry, path)

    def _deleted(self, stream: StreamEntry) -> None:
        path = stream.key.partition(b"\0")[2]
        for entry in stream.watchers:
            self.records.unlink(entry, path, is_deleted=True)
            self.wakes.settle(entry)

    def drop_scope(self, scope: bytes) -> None:
        """Delete the subscriptions of a bucket, which is deleted in the same batch."""
        for entry in list(self.records.entries.values()):
            if entry.scope == scope:
                self.records.remove(entry)

    # -- commands ----------------------------------------------------------------------------

    async def create(
        self, scope: bytes, subscription_id: str, config: SubscriptionConfig, owner: bytes | None
    ) -> SubscriptionView:
        """
        Create a subscription, or confirm one of the same configuration, which gets this owner.

        Raises:
            InvalidSubscription: The configuration is not valid.
            SubscriptionExists: It exists with another configuration.
            BucketNotFound: The scope does not exist.
        """
        config = rules.checked(config)
        self._check_usable()
        if scope and self._engine.buckets.entry(scope).state is None:
            raise BucketNotFound
        key = _key(scope, subscription_id)
        entry = self.records.entries.get(key)
        created = entry is None
        if entry is None:
            if len(self.records.entries) >= SUBSCRIPTIONS_MAX:
                raise InvalidSubscription(f"there are {SUBSCRIPTIONS_MAX} subscriptions already")
            entry = self._create(key, config, owner)
        else:
            assert entry.state is not None
            if entry.state.digest != config.digest():
                raise await self._when_durable(entry, SubscriptionExists())
            before = entry.state.owner
            if before != owner:
                # Renewed credentials: the rights of the new owner count from now on.
                self.records.put(entry, replace(entry.state, owner=owner))
                entry.rights = -1
            self.wakes.renew(entry, before)
        view = await self._view(entry)
        return view._replace(created=created)

    def _create(
        self, key: bytes, config: SubscriptionConfig, owner: bytes | None
    ) -> SubscriptionEntry:
        paths = [path.encode() for path in config.streams]
        self._take_room(paths)
        state = SubscriptionState(
            id=self._engine.take_id(),
            config=replace(config, streams=()),
            digest=config.digest(),
            owner=owner,
            created_at=self._engine.clock(),
        )
        entry = SubscriptionEntry(key, state)
        entry.explicit = dict.fromkeys(paths)
        entry.rights = self._streams.rights
        self.records.add(entry)
        return entry

    async def view(self, scope: bytes, subscription_id: str) -> SubscriptionView:
        """A subscription with its streams. Raises SubscriptionNotFound."""
        return await self._view(self._entry(scope, subscription_id))

    async def _view(self, entry: SubscriptionEntry) -> SubscriptionView:
        await self.records.durable(entry)
        streams, is_cut = await self._streams.linked(entry)
        # What was seen meanwhile may run ahead of the disk.
        await self.records.durable(entry)
        if entry.durable is None:
            raise SubscriptionNotFound
        return SubscriptionView(entry.id, entry.durable, streams, is_cut)

    def find(self, scope: bytes, subscription_id: str) -> SubscriptionState:
        """Its state, for checks of a request. Raises SubscriptionNotFound."""
        state = self._entry(scope, subscription_id).state
        assert state is not None
        return state

    def linked_paths(self, scope: bytes, subscription_id: str) -> tuple[str, ...]:
        """The paths of its explicit links. Raises SubscriptionNotFound."""
        return tuple(path.decode() for path in self._entry(scope, subscription_id).explicit)

    def page(
        self, scope: bytes, after: str, count_max: int
    ) -> tuple[list[tuple[str, SubscriptionState]], bool]:
        """Subscriptions of a scope by their ids as bytes, and whether there are more."""
        stem, cursor = scope + b"\0", scope + b"\0" + after.encode()
        entries = self.records.entries
        keys = sorted(key for key in entries if key.startswith(stem) and key > cursor)
        # Readers see what is durable.
        found = [(entries[key].id, state) for key in keys if (state := entries[key].durable)]
        return found[:count_max], len(found) > count_max

    def scopes(self) -> list[bytes]:
        """The scopes that have subscriptions, in order."""
        return sorted({entry.scope for entry in self.records.entries.values()})

    async def delete(self, scope: bytes, subscription_id: str) -> bool:
        """Delete a subscription; returns whether there was one."""
        self._check_usable()
        entry = self.records.entries.get(_key(scope, subscription_id))
        if entry is None:
            # Its deletion may not be durable yet.
            await self.records.durable()
            return False
        self.records.remove(entry)
        await self.records.durable(entry)
        return True

    async def link(self, scope: bytes, subscription_id: str, paths: Sequence[str]) -> None:
        """Link streams explicitly, at their tails. Raises SubscriptionNotFound."""
        entry = self._entry(scope, subscription_id)
        added = [path.strip("/").encode() for path in paths]
        if b"" in added or len(entry.explicit) + len(added) > LINKS_MAX:
            raise InvalidSubscription(f"streams must be paths, and at most {LINKS_MAX} in total")
        self._take_room(added)
        self.records.link(entry, added)
        await self.records.durable(entry)

    async def unlink(self, scope: bytes, subscription_id: str, path: str) -> None:
        """Remove an explicit link, if there is one. Raises SubscriptionNotFound."""
        entry = self._entry(scope, subscription_id)
        name = path.strip("/").encode()
        if name in entry.explicit:
            self.records.unlink(entry, name)
            self.wakes.settle(entry)
        await self.records.durable(entry)

    async def claim(self, scope: bytes, subscription_id: str, worker: str) -> Claim:
        """
        Claim the pending work of a pull-wake subscription.

        Raises:
            SubscriptionNotFound, InvalidSubscription, AlreadyClaimed, NoPendingWork: It cannot be.
        """
        entry = self._entry(scope, subscription_id)
        if not 0 < len(worker.encode()) <= WORKER_BYTES_MAX:
            raise InvalidSubscription(f"worker must have 1 to {WORKER_BYTES_MAX} bytes")
        self._expire(entry)
        self._streams.drop_unreadable(entry)
        self.wakes.settle(entry)
        assert entry.state is not None
        try:
            state = rules.claim(entry.state, worker, self._engine.clock())
        except Refusal as refusal:
            raise await self._when_durable(entry, refusal) from None
        self.records.put(entry, state)
        await self.records.durable(entry)
        streams, _ = await self._streams.linked(entry)
        return Claim(state.wake_id, state.generation, state.config.lease_ttl_ms, streams)

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
        entry = self._entry(scope, subscription_id)
        if len(acks) > REQUEST_STREAMS_MAX:
            raise InvalidSubscription(f"a request may have {REQUEST_STREAMS_MAX} acks at most")
        try:
            self._fence(entry, wake_id, generation)
            moves = check_acks(self._engine, entry, acks, self._streams.is_readable)
        except Refusal as refusal:
            raise await self._when_durable(entry, refusal) from None
        for path, acked in moves.items():
            self.records.move(entry, path, acked)
        assert entry.state is not None
        issued = False
        self.records.put(entry, rules.extend_lease(entry.state, self._engine.clock()))
        if done:
            issued = self.wakes.end(entry)
        await self.records.durable(entry)
        return issued

    async def release(
        self, scope: bytes, subscription_id: str, wake_id: str, generation: int
    ) -> None:
        """End a wake without acknowledging anything. Raises SubscriptionNotFound, Fenced."""
        entry = self._entry(scope, subscription_id)
        try:
            self._fence(entry, wake_id, generation)
        except Refusal as refusal:
            raise await self._when_durable(entry, refusal) from None
        self.wakes.end(entry)
        await self.records.durable(entry)

    def delivered(self, delivery: WakeDelivery, *, done: bool) -> None:
        """A webhook answered with 2xx; `done` acknowledges the tails that it was told."""
        # `done` ends the wake also if its worker called back before it answered.
        entry = self._delivering(delivery, or_leased=done)
        if entry is None:
            return
        assert entry.state is not None
        self.records.put(entry, rules.extend_lease(entry.state, self._engine.clock()))
        if done:
            for path, acked in told_tails(self._engine, entry, delivery.streams).items():
                self.records.move(entry, path, acked)
            self.wakes.end(entry)

    def failed(self, delivery: WakeDelivery, error: str) -> None:
        """A webhook did not answer with 2xx: it is tried again later."""
        entry = self._delivering(delivery)
        if entry is not None:
            self.wakes.fail(entry, error)

    async def secret(self, name: str) -> bytes:
        """32 random bytes that are made once and kept: for keys. Durable when this returns."""
        self._check_usable()
        stored = self._secrets.get(name) or self._engine.store.secret(name.encode())
        if stored is None:
            stored = self._secrets[name] = secrets.token_bytes(SECRET_BYTES)
            self._engine.commit.open.transaction.put_secret(name.encode(), stored)
            self._engine.commit.schedule()
        await self.records.durable()
        return stored

    # -- entries -----------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._engine.failure is not None:
            raise StorageFailed

    def _take_room(self, paths: Sequence[bytes]) -> None:
        if len(paths) > REQUEST_STREAMS_MAX:
            raise InvalidSubscription(f"a request may have {REQUEST_STREAMS_MAX} streams at most")
        self._engine.take_room(sum(len(path) + LINK_BYTES_ABOUT for path in paths))

    def _entry(self, scope: bytes, subscription_id: str) -> SubscriptionEntry:
        self._check_usable()
        entry = self.records.entries.get(_key(scope, subscription_id))
        if entry is None:
            raise SubscriptionNotFound
        return entry

    async def _when_durable(self, entry: SubscriptionEntry, refusal: Refusal) -> Refusal:
        """A refusal waits for the state that it was decided upon."""
        await self.records.durable(entry)
        return refusal

    def _expire(self, entry: SubscriptionEntry) -> None:
        """End a lease that has expired, if the timer has not yet."""
        assert entry.state is not None
        lease_until = entry.state.lease_until
        if lease_until is not None and lease_until <= self._engine.clock():
            self.wakes.end(entry)

    def _fence(self, entry: SubscriptionEntry, wake_id: str, generation: int) -> None:
        self._expire(entry)
        assert entry.state is not None
        rules.fence(entry.state, wake_id, generation)

    def _delivering(
        self, delivery: WakeDelivery, *, or_leased: bool = False
    ) -> SubscriptionEntry | None:
        """The subscription of a delivery, if its wake is still the one that is being delivered."""
        entry = self.records.entries.get(_key(delivery.scope, delivery.id))
        if entry is None or entry.state is None or entry.state.id != delivery.state.id:
            return None
        if or_leased and entry.state.phase is Phase.LEASED and self._engine.failure is None:
            return entry if entry.state.wake_id == delivery.state.wake_id else None
        return entry if self.wakes.current(entry, delivery.state.generation) else None


def _key(scope: bytes, subscription_id: str) -> bytes:
    name = subscription_id.encode()
    if not 0 < len(name) <= ID_BYTES_MAX or b"\0" in name:
        raise InvalidSubscription(f"a subscription id has 1 to {ID_BYTES_MAX} bytes, without NUL")
    return scope + b"\0" + name
