"""
Wakes: issuing them, writing their events, delivering them, and the timer of leases and retries.

Rule 1: a wake is issued in the batch that makes it due, and its event is in the same batch.

Rule 2: a webhook is called when its wake is durable, never before.

Events are appended when the batch is about to be written, and not where the wake is issued: a wake
stream may itself be watched, even by the subscription that writes to it. A subscription has at most
one wake in flight, so this ends.
"""

import asyncio
import random
import secrets
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tailrace.engine.errors import StorageFailed
from tailrace.engine.subscriptions.entry import SubscriptionEntry, WakeDelivery
from tailrace.engine.subscriptions.records import SubscriptionRecords
from tailrace.engine.subscriptions.streams import SubscriptionStreams
from tailrace.protocol import subscription as rules
from tailrace.protocol.errors import Refusal
from tailrace.protocol.subscription import Phase, SubscriptionState

if TYPE_CHECKING:
    from tailrace.engine.engine import Engine

__all__ = ["SubscriptionWakes"]

TIMER_S_MAX: Final = 1.0
"""The clock is looked at this often while something is due later: it may be set."""
UNANSWERED: Final = "the webhook did not answer before the lease expired"

log = structlog.get_logger("tailrace")


class SubscriptionWakes:
    def __init__(
        self, engine: "Engine", records: SubscriptionRecords, streams: SubscriptionStreams
    ) -> None:
        self.on_wake: Callable[[WakeDelivery], None] | None = None
        self.may_append: Callable[[bytes | None, bytes], bool] | None = None
        self._engine = engine
        self._records = records
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        # Wakes of the open batch whose events are to be written.
        self._events: list[tuple[SubscriptionEntry, int, bytes]] = []
        self._heap: list[tuple[int, int, SubscriptionEntry]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._last_now = 0
        self._stopped = False
        self._tasks: set[asyncio.Task[None]] = set()
        records.on_change = self._changed
        for entry in records.entries.values():
            self._changed(entry)

    def start(self, on_wake: Callable[[WakeDelivery], None]) -> None:
        """Deliver webhooks from now on, first of all those that were not when the server died."""
        self.on_wake = on_wake
        now = self._engine.clock()
        for entry in list(self._records.entries.values()):
            state = entry.state
            assert state is not None
            if state.is_webhook and state.phase is Phase.WAKING and state.retry_at is None:
                if not state.pending or (state.lease_until or 0) <= now:
                    # A worker that received it may be at work: it is fenced.
                    self.end(entry)
                else:
                    self._records.put(entry, rules.deliver_again(state, now))
                    self._deliver_when_durable(entry)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    # -- issuing -----------------------------------------------------------------------------

    def settle(self, entry: SubscriptionEntry, path: bytes = b"") -> bool:
        """
        Issue the wake that a subscription owes, if it owes one; returns whether it does.

        `path` is the stream that made work pending, if it is a single one.
        """
        state = entry.state
        assert state is not None
        if not state.pending:
            if state.phase is Phase.WAKING and (not state.is_webhook or state.retry_at is not None):
                # Nobody has it yet, and there is no work left.
                self._records.put(entry, rules.end_wake(state))
            return False
        if state.phase is not Phase.IDLE:
            return False
        wake_id = "wake_" + secrets.token_hex(16)
        now = self._engine.clock()
        self._records.put(entry, rules.issue_wake(state, wake_id, now))
        if state.is_webhook:
            self._deliver_when_durable(entry)
        else:
            self._events.append(
                (entry, state.generation + 1, path or next(iter(entry.cursors), b""))
            )
        return True

    def end(self, entry: SubscriptionEntry) -> bool:
        """End a wake; returns whether another one was issued."""
        assert entry.state is not None
        self._records.put(entry, rules.end_wake(entry.state))
        self._streams.drop_unreadable(entry)
        return self.settle(entry)

    def write_events(self) -> None:
        """Append the events of wakes to their streams: the open batch is about to be written."""
        while self._events:
            entry, generation, path = self._events.pop(0)
            state = entry.state
            # The wake may have ended in the same batch, and another one been issued.
            if (
                state is not None
                and state.generation == generation
                and state.phase is not Phase.IDLE
            ):
                try:
                    self._write_event(entry, state, path)
                except Exception as error:
                    # The append that owes the wake must not fail: a claim needs no event.
                    log.error("a wake event cannot be written", id=entry.id, error=str(error))

    def _write_event(self, entry: SubscriptionEntry, state: SubscriptionState, path: bytes) -> None:
        engine = self._engine
        now = engine.clock()
        name = state.config.wake_stream
        assert name is not None
        entry.is_untold = not self._may_write(entry, state.owner)
        if entry.is_untold:
            log.warning("no wake event", id=entry.id, stream=name, reason="the owner has no right")
            return
        event = {
            "type": "wake",
            "subscription_id": entry.id,
            "stream": path.decode(),
            "generation": state.generation,
            "ts": now,
        }
        try:
            engine.append(entry.stream_key(name.encode()), msgspec.json.encode(event))
        except Refusal as refusal:
            log.warning("no wake event", id=entry.id, stream=name, reason=refusal.detail)

    def _may_write(self, entry: SubscriptionEntry, owner: bytes | None) -> bool:
        assert entry.state is not None
        name = entry.state.config.wake_stream or ""
        return self.may_append is None or self.may_append(owner, entry.stream_key(name.encode()))

    def renew(self, entry: SubscriptionEntry, before: bytes | None) -> None:
        """Write the event of a pull-wake that the owner `before` had no right to write."""
        state = entry.state
        assert state is not None
        if state.is_webhook or state.phase is not Phase.WAKING:
            return
        if entry.is_untold or not self._may_write(entry, before):
            for path in entry.cursors:
                if self._streams.is_readable(entry, entry.stream_key(path)):
                    self._events.append((entry, state.generation, path))
                    # The reply waits for the batch of the event.
                    self._records.put(entry, state)
                    return

    # -- webhooks ----------------------------------------------------------------------------

    def _deliver_when_durable(self, entry: SubscriptionEntry) -> None:
        assert entry.state is not None
        generation = entry.state.generation
        self._engine.commit.open.callbacks.append(partial(self._deliver, entry, generation))

    def _deliver(
        self, entry: SubscriptionEntry, generation: int, failure: StorageFailed | None
    ) -> None:
        if failure is None and self.on_wake is not None and not self._stopped:
            task = self._loop.create_task(self._send(entry, generation))
            self._tasks.add(task)
            task.add_done_callback(self._sent)

    async def _send(self, entry: SubscriptionEntry, generation: int) -> None:
        streams, _ = await self._streams.linked(entry)
        state = entry.state
        if self.current(entry, generation) and self.on_wake is not None:
            assert state is not None
            self.on_wake(WakeDelivery(entry.scope, entry.id, state, streams))

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The lease expires, and the wake is issued again.
            self._loop.call_exception_handler(
                {"message": "failed to deliver a wake", "exception": error}
            )

    def current(self, entry: SubscriptionEntry, generation: int) -> bool:
        """Whether a wake of this generation is being delivered."""
        state = entry.state
        return (
            state is not None
            and state.generation == generation
            and state.phase is Phase.WAKING
            and state.retry_at is None
            and self._engine.failure is None
        )

    def fail(self, entry: SubscriptionEntry, error: str) -> None:
        """The delivery of the current wake failed: schedule a retry, if there still is work."""
        assert entry.state is not None
        jitter = random.uniform(-1, 1)
        now = self._engine.clock()
        self._records.put(entry, rules.fail_delivery(entry.state, error, now, jitter))
        self.settle(entry)

    # -- the timer ---------------------------------------------------------------------------

    def _changed(self, entry: SubscriptionEntry) -> None:
        now = self._engine.clock()
        state = entry.state
        deadline = None if state is None else (state.retry_at, state.lease_until)
        due = None if state is None else rules.due_at(state, now)
        if due is not None and entry.due is not None and deadline == entry.deadline:
            # After the clock was set back, each change would postpone it.
            due = min(due, entry.due)
        entry.deadline, entry.due = deadline, due
        if entry.due is not None and (entry.heaped is None or entry.due < entry.heaped):
            self._push(entry, entry.due, now)

    def _push(self, entry: SubscriptionEntry, due: int, now: int) -> None:
        entry.heaped = due
        heappush(self._heap, (due, id(entry), entry))
        if self._heap[0][2] is entry:
            self._set_timer(now)

    def _set_timer(self, now: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap and not self._stopped:
            delay_s = min(max(self._heap[0][0] - now, 1) / 1000, TIMER_S_MAX)
            self._timer = self._loop.call_later(delay_s, self.tick)

    def tick(self) -> None:
        """Do what is due: end leases that have expired, and try webhooks again."""
        engine = self._engine
        if self._stopped or engine.failure is not None:
            return
        now = engine.clock()
        if now < self._last_now:
            self._clock_set_back()
        self._last_now = now
        try:
            while self._heap and self._heap[0][0] <= now:
                at, _, entry = heappop(self._heap)
                if at != entry.heaped:
                    continue
                entry.heaped = None
                if entry.due is None or entry.state is None:
                    continue
                if entry.due <= now:
                    self._do_due(entry, entry.state, now)
                else:
                    # The lease was extended meanwhile.
                    self._push(entry, entry.due, now)
        finally:
            self._set_timer(now)

    def _clock_set_back(self) -> None:
        self._heap.clear()
        for entry in self._records.entries.values():
            entry.heaped = entry.due = None
            self._changed(entry)

    def _do_due(self, entry: SubscriptionEntry, state: SubscriptionState, now: int) -> None:
        if state.retry_at is not None:
            self._streams.drop_unreadable(entry)
            assert entry.state is not None
            if entry.state.pending:
                self._records.put(entry, rules.deliver_again(entry.state, now))
                self._deliver_when_durable(entry)
            else:
                self.end(entry)
            return
        is_unanswered = state.is_webhook and state.phase is Phase.WAKING
        if self.end(entry) and is_unanswered:
            # Not at once: a webhook that hangs must not be called once a lease.
            self.fail(entry, UNANSWERED)
