"""
The subscriptions in memory, and every change of them in the open batch.

All changes go through here: what is stored, the index and the number of pending streams follow
them.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tailrace.engine.commit import CommitBatch
from tailrace.engine.errors import StorageFailed
from tailrace.engine.subscriptions.entry import SubscriptionEntry
from tailrace.engine.subscriptions.index import SubscriptionIndex
from tailrace.protocol.offset import Offset
from tailrace.protocol.subscription import Link, SubscriptionState

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["SubscriptionRecords"]


class SubscriptionRecords:
    def __init__(self, engine: "Engine") -> None:
        self.entries: dict[bytes, SubscriptionEntry] = {}
        self.index = SubscriptionIndex()
        self.version = 0
        """Grows when a stream may have other watchers; 0 while there was never a subscription."""
        self.on_change: Callable[[SubscriptionEntry], None] | None = None
        """Called after each change of a state."""
        self._engine = engine
        # The states that the open batch changes.
        self._batch: CommitBatch | None = None
        self._changed: dict[SubscriptionEntry, SubscriptionState | None] = {}
        self._load()

    def _load(self) -> None:
        store = self._engine.store
        by_id: dict[int, SubscriptionEntry] = {}
        for key, state in store.subscriptions():
            by_id[state.id] = self.entries[key] = SubscriptionEntry(key, state)
        for subscription_id, path, link in store.links() if by_id else ():
            # `check` reports links of no subscription.
            if (entry := by_id.get(subscription_id)) is not None:
                if link.is_explicit:
                    entry.explicit[path] = None
                if link.acked is not None:
                    entry.cursors[path] = link.acked
        for entry in self.entries.values():
            self.index.add(entry)
            self.version = 1

    # -- changes -----------------------------------------------------------------------------

    def put(self, entry: SubscriptionEntry, state: SubscriptionState | None) -> None:
        """Change the state of a subscription in the open batch."""
        commit = self._engine.commit
        batch = commit.open
        if self._batch is not batch:
            self._batch, self._changed = batch, {}
            batch.callbacks.append(partial(self._publish, batch, self._changed))
        self._changed[entry] = entry.state = state
        entry.pending = batch
        batch.transaction.put_subscription(entry.key, state)
        commit.schedule()
        if self.on_change is not None:
            self.on_change(entry)

    def _publish(
        self,
        batch: CommitBatch,
        changed: dict[SubscriptionEntry, SubscriptionState | None],
        failure: StorageFailed | None,
    ) -> None:
        if self._batch is batch:
            # A batch that is done must not be kept in memory.
            self._batch = None
        if failure is not None:
            return
        for entry, state in changed.items():
            entry.durable = state
            if entry.pending is batch:
                entry.pending = None

    def add(self, entry: SubscriptionEntry) -> None:
        """A new subscription, with its explicit links."""
        entry.durable = None
        self.entries[entry.key] = entry
        self.put(entry, entry.state)
        for path in entry.explicit:
            self._store_link(entry, path)
        self.index.add(entry)
        self.version += 1

    def remove(self, entry: SubscriptionEntry) -> None:
        """Delete a subscription and its links."""
        assert entry.state is not None
        self.index.remove(entry)
        self.version += 1
        del self.entries[entry.key]
        if entry.explicit or entry.cursors:
            self._engine.commit.open.transaction.drop_links(entry.state.id)
        self.put(entry, None)

    def link(self, entry: SubscriptionEntry, paths: Iterable[bytes]) -> None:
        """Add explicit links. Cursors stay where they are."""
        for path in paths:
            if path not in entry.explicit:
                entry.explicit[path] = None
                self._store_link(entry, path)
                self.index.link(entry, path)
                self.version += 1
        assert entry.state is not None
        self.put(entry, entry.state)

    def unlink(self, entry: SubscriptionEntry, path: bytes, *, is_deleted: bool = False) -> None:
        """
        Remove an explicit link. The cursor goes too, unless the pattern still links the stream.

        If the stream is deleted, its cursor always goes.
        """
        assert entry.state is not None
        if path in entry.explicit:
            self.index.unlink(entry, path)
            del entry.explicit[path]
            self.version += 1
            if path not in entry.cursors:
                self._store_link(entry, path)
                self.put(entry, entry.state)
        if path in entry.cursors:
            goes = is_deleted or not entry.is_linked(path)
            self.move(entry, path, None if goes else entry.cursors[path])

    def move(self, entry: SubscriptionEntry, path: bytes, acked: Offset | None) -> None:
        """Set the cursor of a stream with pending work; None: nothing is pending any more."""
        state = entry.state
        assert state is not None
        change = (acked is not None) - (path in entry.cursors)
        if acked is None:
            entry.cursors.pop(path, None)
        else:
            entry.cursors[path] = acked
        self._store_link(entry, path)
        # Also if the number is the same: a reply waits for the batch of the cursor.
        self.put(entry, replace(state, pending=state.pending + change) if change else state)

    def _store_link(self, entry: SubscriptionEntry, path: bytes) -> None:
        assert entry.state is not None
        link = Link(path in entry.explicit, entry.cursors.get(path))
        stored = None if link == Link() else link
        self._engine.commit.open.transaction.put_link(entry.state.id, path, stored)

    # -- waiting -----------------------------------------------------------------------------

    async def durable(self, entry: SubscriptionEntry | None = None) -> None:
        """
        Wait until the state of a subscription is durable; without one, until everything is.

        Raises StorageFailed if that fails.
        """
        commit = self._engine.commit
        if commit.failure is not None:
            raise StorageFailed
        if entry is not None:
            batch = entry.pending
        else:
            batch = commit.open if commit.open.dirty else commit.syncing
        if batch is None:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(failure: StorageFailed | None) -> None:
            if done.done():
                return
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure)

        batch.callbacks.append(settled)
        await done
