"""A subscription as it is kept in memory, and the values that its commands return."""

from typing import Final, NamedTuple

from tailrace.engine.entry import Entry
from tailrace.protocol.glob import Glob
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import StreamState
from tailrace.protocol.subscription import BEFORE_FIRST, LinkedStream, SubscriptionState

__all__ = ["Claim", "SubscriptionEntry", "SubscriptionView", "WakeDelivery", "lives"]

_SEPARATOR: Final = b"\0"


def lives(state: StreamState | None) -> bool:
    """Whether a stream exists for clients: a soft-deleted one exists for its forks only."""
    return state is not None and not state.deleted


class SubscriptionEntry(Entry[SubscriptionState]):
    """
    A subscription, its explicit links, and the cursors of streams with pending work.

    A linked stream without a cursor here is acknowledged up to its tail.
    """

    __slots__ = (
        "cursors", "deadline", "due", "explicit", "glob", "heaped", "id", "is_untold", "rights",
        "scope",
    )  # fmt: skip

    def __init__(self, key: bytes, state: SubscriptionState) -> None:
        super().__init__(key, state)
        self.scope, _, name = key.partition(_SEPARATOR)
        self.id = name.decode()
        pattern = state.config.pattern
        self.glob = None if pattern is None else Glob(pattern)
        self.cursors: dict[bytes, Offset] = {}
        # Dicts keep the order, and need no copy while they are changed at the end.
        self.explicit: dict[bytes, None] = {}
        # When the timer must look at it, and the earliest time that the timer knows.
        # As stored, and when the timer acts on it.
        self.deadline: tuple[int | None, int | None] | None = None
        self.due: int | None = None
        self.heaped: int | None = None
        # The number of the last change of rights that its cursors were checked for.
        self.rights = 0
        # The owner had no right to write the event of the last wake.
        self.is_untold = False

    def stream_key(self, path: bytes) -> bytes:
        """The key of a stream of the same scope."""
        return self.scope + _SEPARATOR + path

    def is_linked(self, path: bytes) -> bool:
        """Whether it watches a stream of this path."""
        return path in self.explicit or (self.glob is not None and self.glob.matches(path))

    def cursor(self, path: bytes, stream: StreamState | None) -> Offset:
        """The acknowledged offset of a stream, which may not exist."""
        acked = self.cursors.get(path)
        if acked is not None:
            return acked
        if stream is None or not lives(stream):
            return START
        return self.caught_up(path, stream.id, stream.tail)

    def caught_up(self, path: bytes, stream_id: int, tail: Offset) -> Offset:
        """The cursor of a stream without pending work, whose tail this is."""
        assert self.state is not None
        if tail == START and stream_id > self.state.id:
            is_explicit_only = self.glob is None or not self.glob.matches(path)
            # It began to match later: its first append is pending, from `-1`.
            return tail if is_explicit_only else BEFORE_FIRST
        return tail


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


class WakeDelivery(NamedTuple):
    """A wake that must be sent to a webhook now, for the first time or again."""

    scope: bytes
    id: str
    state: SubscriptionState
    """Has the configuration, the owner, the wake id and the generation."""
    streams: list[LinkedStream]
    """Those to be told: pending ones first. Give them back to `delivered`."""
