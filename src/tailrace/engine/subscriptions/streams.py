"""The streams of a subscription as clients see them: their cursors and tails."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog

from tailrace.engine.listing import NAMES_STEP, Turn
from tailrace.engine.subscriptions.entry import SubscriptionEntry
from tailrace.engine.subscriptions.records import SubscriptionRecords
from tailrace.protocol.offset import START
from tailrace.protocol.subscription import LinkedStream

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["SubscriptionStreams"]

LISTED_MAX: Final = 1000
"""A view, a claim and a webhook list at most this many streams, those with work first."""
NAMES_SCANNED_MAX: Final = 10_000
"""At most this many names are compared with a pattern for them."""

log = structlog.get_logger("tailrace")


class SubscriptionStreams:
    def __init__(self, engine: "Engine", records: SubscriptionRecords) -> None:
        self.readable: Callable[[bytes | None, bytes], bool] | None = None
        self.rights = 0
        """Grows when `readable` may return something else."""
        self._engine = engine
        self._records = records

    def is_readable(self, entry: SubscriptionEntry, key: bytes) -> bool:
        """Whether the owner of a subscription is known to have the right to read a stream."""
        return self._rights(entry, key) is True

    def _rights(self, entry: SubscriptionEntry, key: bytes) -> bool | None:
        """The same; None if the rights are not known."""
        if self.readable is None:
            return True
        try:
            return entry.state is not None and self.readable(entry.state.owner, key)
        except Exception as error:
            # This is part of an append, which must not fail half-way.
            log.error("the rights of an owner are not known", id=entry.id, error=str(error))
            return None

    def drop_unreadable(self, entry: SubscriptionEntry) -> None:
        """
        After a change of rights: work that the owner may no longer read is not pending.

        Work stays pending where the rights are not known: it would be lost for good.
        """
        if entry.rights == self.rights or entry.state is None:
            return
        entry.rights = self.rights
        for path in list(entry.cursors):
            if self._rights(entry, entry.stream_key(path)) is False:
                self._records.move(entry, path, None)

    async def linked(self, entry: SubscriptionEntry) -> tuple[list[LinkedStream], bool]:
        """
        The streams of a subscription that its owner may read, and whether that is not all of them.

        Those with pending work come first, then explicit ones, then others by their names. In
        bounded steps: a view of many streams is not of one moment.
        """
        found: dict[bytes, LinkedStream] = {}
        turn = Turn()
        # A copy, since both change during a pause.
        paths = [*islice(entry.cursors, LISTED_MAX + 1), *islice(entry.explicit, LISTED_MAX + 1)]
        for path in paths:
            if len(found) >= LISTED_MAX:
                return list(found.values()), True
            if path not in found and (stream := self._one(entry, path)) is not None:
                found[path] = stream
            if turn.is_over:
                await turn.pause()
        if entry.glob is None:
            return list(found.values()), False
        scanned = 0
        for names in self._names(entry.stream_key(entry.glob.prefix)):
            for name in names:
                path = name[len(entry.scope) + 1 :]
                if path in found or not entry.glob.matches(path):
                    continue
                if len(found) >= LISTED_MAX:
                    return list(found.values()), True
                if (stream := self._one(entry, path)) is not None:
                    found[path] = stream
                if turn.is_over:
                    await turn.pause()
            scanned += len(names)
            if scanned >= NAMES_SCANNED_MAX:
                return list(found.values()), True
            if turn.is_over:
                await turn.pause()
        return list(found.values()), False

    def _names(self, prefix: bytes) -> Iterator[list[bytes]]:
        after = b""
        while names := self._engine.store.names(prefix, after, NAMES_STEP):
            yield names
            after = names[-1]

    def _one(self, entry: SubscriptionEntry, path: bytes) -> LinkedStream | None:
        key = entry.stream_key(path)
        if entry.state is None or not self.is_readable(entry, key):
            return None
        is_explicit = path in entry.explicit
        stream = self._engine.peek(key)
        if stream is None:
            # An explicit link may be to a stream that does not exist yet.
            return LinkedStream(path.decode(), True, START, START, 0) if is_explicit else None
        acked = entry.cursor(path, stream)
        # A cursor may run ahead of the tail that readers see.
        tail = max(stream.tail, acked)
        return LinkedStream(path.decode(), is_explicit, acked, tail, stream.id)
