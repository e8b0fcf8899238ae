"""
Checks that subscriptions are consistent with their links, and links with the streams.

    subscriptions   each has as many pending streams as its row has, and a wake if it has any
    links           each is of a subscription, and is explicit or of its pattern
    cursors         each is before the tail of a stream that exists

What no row tells cannot be checked: a stream without a cursor is acknowledged up to its tail.
"""

from collections.abc import Iterator

from tailrace.engine.codec import decode_link, decode_record, decode_state, decode_subscription
from tailrace.engine.rocks.findings import stream_name
from tailrace.engine.rocks.keys import ID, PAIR, SECRET, items
from tailrace.engine.rocks.salvage_reader import SalvageReader
from tailrace.engine.subscriptions.entry import SubscriptionEntry, lives
from tailrace.protocol.machine import apply_append
from tailrace.protocol.names import bucket_of
from tailrace.protocol.state import StreamState
from tailrace.protocol.subscription import Link, Phase, SubscriptionState

__all__ = ["SubscriptionCheck"]


class SubscriptionCheck:
    def __init__(self, reader: SalvageReader) -> None:
        self.highest_id = 0
        self._reader = reader
        self._entries: dict[int, SubscriptionEntry] = {}
        self._pending: dict[int, int] = {}

    def check(self) -> None:
        was_partial = self._reader.partial
        for key, value in self._reader.walk("subscriptions"):
            if not key.startswith(SECRET):
                self._check_subscription(key, value)
        for key, value in self._reader.walk("links"):
            self._check_link(key, value)
        if self._reader.partial and not was_partial:
            # Links that cannot be read cannot be counted.
            return
        for subscription_id, entry in self._entries.items():
            state = entry.state
            assert state is not None
            if state.pending != (found := self._pending.get(subscription_id, 0)):
                problem = f"has {found} pending streams, and its row has {state.pending}"
                self._report(entry, problem)

    def _check_subscription(self, key: bytes, value: bytes) -> None:
        name = stream_name(key)
        try:
            state = decode_subscription(value)
            entry = SubscriptionEntry(key, state)
        except Exception as error:  # damaged bytes can fail in any way
            self._reader.report(f"subscription {name} cannot be read: {error}")
            self._reader.partial = True
            return
        if state.id in self._entries:
            self._report(entry, "has the internal id of another one")
        self._entries[state.id] = entry
        self.highest_id = max(self.highest_id, state.id)
        for problem in _problems(state):
            self._report(entry, problem)
        bucket = bucket_of(key)
        if bucket and self._reader.get("buckets", bucket) is None and not self._reader.partial:
            self._report(entry, "is of a bucket that does not exist")

    def _check_link(self, key: bytes, value: bytes) -> None:
        (subscription_id,) = ID.unpack_from(key)
        path = key[ID.size :]
        self.highest_id = max(self.highest_id, subscription_id)
        entry = self._entries.get(subscription_id)
        if entry is None:
            if not self._reader.partial:
                text = f"there are links of subscription {subscription_id}, which does not exist"
                self._reader.report(text)
            return
        try:
            link = decode_link(value)
        except Exception as error:  # damaged bytes can fail in any way
            self._report(entry, f"has a link that cannot be read: {error}")
            return
        if link == Link():
            self._report(entry, f"has an empty link to {path.decode(errors='replace')}")
        if not link.is_explicit and (entry.glob is None or not entry.glob.matches(path)):
            self._report(entry, f"does not match {path.decode(errors='replace')}, and links it")
        if link.acked is not None:
            self._pending[subscription_id] = self._pending.get(subscription_id, 0) + 1
            self._check_cursor(entry, path, link)

    def _check_cursor(self, entry: SubscriptionEntry, path: bytes, link: Link) -> None:
        try:
            state = self._stream(entry.stream_key(path))
        except Exception:  # the check of the stream reports it
            return
        name = path.decode(errors="replace")
        if state is None or not lives(state):
            if not self._reader.partial:
                self._report(entry, f"has pending work in {name}, which does not exist")
        elif link.acked is not None and link.acked >= state.tail:
            tail = state.tail.token()
            self._report(entry, f"has its cursor of {name} at or past the tail {tail}")

    def _stream(self, key: bytes) -> StreamState | None:
        stream_id = self._reader.get("names", key)
        stored = None if stream_id is None else self._reader.get("states", stream_id)
        if stored is None:
            return None
        state = decode_state(stored)
        for value in self._records_after(state):
            state = apply_append(state, decode_record(value)[1])
        return state

    def _records_after(self, checkpoint: StreamState) -> Iterator[bytes]:
        first = PAIR.pack(checkpoint.id, checkpoint.tail.byte)
        if checkpoint.closed:
            return
        for _, value in items(self._reader.families["records"], first, ID.pack(checkpoint.id + 1)):
            yield value

    def _report(self, entry: SubscriptionEntry, problem: str) -> None:
        self._reader.report(f"subscription {stream_name(entry.key)} {problem}")


def _problems(state: SubscriptionState) -> Iterator[str]:
    is_idle = state.phase is Phase.IDLE
    if state.pending and is_idle:
        yield "has pending work and no wake"
    if bool(state.wake_id) is is_idle or (not is_idle and not state.generation):
        yield "has a wake that does not fit its phase"
    has_deadline = state.lease_until is not None or state.retry_at is not None
    needs_deadline = not is_idle and (state.is_webhook or state.phase is Phase.LEASED)
    if has_deadline is not needs_deadline:
        yield "has a deadline that does not fit its phase"
