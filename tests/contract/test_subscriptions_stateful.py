"""
Random commands on streams, forks and subscriptions, with restarts and time, against a naive model.

No wake is owed and missing, no cursor moves back, and every answer is that of the model. Commands
of one turn are decided upon states that run ahead of the disk.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Phases
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tailrace.engine.engine import Engine
from tailrace.engine.entry import StreamEntry
from tailrace.engine.subscriptions import subscriptions
from tailrace.engine.subscriptions.entry import SubscriptionEntry
from tailrace.engine.subscriptions.subscriptions import Subscriptions, WakeDelivery
from tailrace.engine.subscriptions.wakes import SubscriptionWakes
from tailrace.protocol.errors import Refusal
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import Append, Create, Delete, ForkRequest
from tailrace.protocol.subscription import LinkedStream, Phase, SubscriptionConfig
from tailrace.protocol.subscription_errors import SubscriptionNotFound
from tests.contract.harness import World
from tests.contract.subscribing import Subscriber, pull, webhook
from tests.contract.subscription_model import LEASE_MS, Model, ModelSubscription, Position
from tests.operations.building import no_damage
from tests.support.tiers import slow_but

PATHS = ("a/1", "a/2", "b/1", "w/p", "w/q")
SUBSCRIPTIONS: dict[str, tuple[SubscriptionConfig, str | None]] = {
    "p": (pull("a/*", streams=("b/1",), wake_stream="w/p", lease_ttl_ms=LEASE_MS), "a/[^/]+"),
    "q": (pull("**", wake_stream="w/q", lease_ttl_ms=LEASE_MS), ".+"),
    "h": (webhook("*/1", lease_ttl_ms=LEASE_MS), "[^/]+/1"),
    "i": (webhook(None, streams=("a/1", "w/p"), lease_ttl_ms=LEASE_MS), None),
}

STREAM = st.sampled_from(PATHS)
NAME = st.sampled_from(tuple(SUBSCRIPTIONS))
STEP = st.one_of(
    st.tuples(st.sampled_from(["append", "append", "append", "create", "delete"]), STREAM),
    st.tuples(st.just("fork"), STREAM, st.sampled_from(["a/1", "a/2", "b/1"])),
    st.tuples(st.sampled_from(["subscribe", "subscribe", "subscribe", "unsubscribe"]), NAME),
    st.tuples(st.sampled_from(["link", "unlink"]), NAME, STREAM),
    st.tuples(st.just("claim"), NAME),
    st.tuples(
        st.just("ack"),
        NAME,
        st.lists(st.tuples(STREAM, st.sampled_from(["tail", "tail", "next", "back", "past"]))),
        st.booleans(),
        st.sampled_from([False, False, False, True]),
    ),
    st.tuples(st.just("release"), NAME, st.booleans()),
)


class SubscriptionsAgainstModel(RuleBasedStateMachine):
    kind = "memory"
    slow_disk = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="subscriptions-"))
        self.world = World(self.kind, self.directory / "data", streams_cached_max=4)
        self.model = Model(self.world.now)
        self.subscriber = Subscriber(self.world)
        self.acked: dict[tuple[int, str, int], Offset] = {}
        self.start()

    def start(self) -> None:
        if self.slow_disk:
            self.world.slow_disk()
        self.subscriber.start()

    def teardown(self) -> None:
        self.world.close()
        if self.kind == "rocks":
            no_damage(self.directory / "data")
        shutil.rmtree(self.directory)

    @initialize(names=st.lists(NAME, unique=True), paths=st.lists(STREAM, unique=True))
    def begin(self, names: list[str], paths: list[str]) -> None:
        self.one_turn([*(("subscribe", name) for name in names or SUBSCRIPTIONS)])
        self.one_turn([*(("create", path) for path in paths or PATHS)])

    # -- one turn ------------------------------------------------------------------------------

    @rule(path=STREAM)
    def append(self, path: str) -> None:
        self.one_turn([("append", path)])

    @rule(steps=st.lists(STEP, min_size=1, max_size=8))
    def one_turn(self, steps: list[tuple[Any, ...]]) -> None:
        """Commands that arrive together."""
        calls: list[Callable[[], Coroutine[Any, Any, str]]] = []
        expected = []
        for kind, *arguments in steps:
            call, told = getattr(self, f"_{kind}")(*arguments)
            calls.append(call)
            expected.append(told)
        self.model.flush()

        async def work() -> list[str]:
            # Tasks begin in their order, and each is decided before it waits.
            return list(await asyncio.gather(*[self._told(call) for call in calls]))

        assert self.world.run(work()) == expected
        self.check()

    async def _told(self, call: Callable[[], Coroutine[Any, Any, str]]) -> str:
        try:
            return await call()
        except Refusal as refusal:
            return refusal.code

    async def _submit(self, path: str, command: Create | Append | Delete) -> str:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.world.engine.submit(self.subscriber.key(path), command, reply.set_result)
        outcome = await reply
        return outcome.code if isinstance(outcome, Refusal) else "done"

    async def _nothing(self) -> str:
        return "done"

    def _append(self, path: str) -> tuple[Any, str]:
        if path in self.model.taken:
            return self._nothing, "done"
        exists = path in self.model.streams
        self.model.append(path)

        async def call() -> str:
            if exists:
                return await self._submit(path, Append(b"x", "text/plain"))
            new_id = self.world.engine.new_id()
            return await self._submit(path, Create(id=new_id, content_type="text/plain", body=b"x"))

        return call, "done"

    def _create(self, path: str) -> tuple[Any, str]:
        if path in self.model.taken or self.model.create(path).is_fork:
            return self._nothing, "done"

        async def call() -> str:
            new_id = self.world.engine.new_id()
            return await self._submit(path, Create(id=new_id, content_type="text/plain"))

        return call, "done"

    def _fork(self, path: str, source: str) -> tuple[Any, str]:
        if not self.model.fork(path, source):
            return self._nothing, "done"

        async def call() -> str:
            request = ForkRequest(self.subscriber.key(source))
            new_id = self.world.engine.new_id()
            return await self._submit(path, Create(id=new_id, content_type=None, fork=request))

        return call, "done"

    def _delete(self, path: str) -> tuple[Any, str]:
        if path in self.model.taken:
            return self._nothing, "done"
        expected = "done" if self.model.delete(path) else "stream-not-found"
        return lambda: self._submit(path, Delete()), expected

    def _subscribe(self, name: str) -> tuple[Any, str]:
        config, pattern = SUBSCRIPTIONS[name]
        expected = self.model.subscribe(name, pattern, config.streams, config.wake_stream)

        async def call() -> str:
            try:
                view = await self.world.engine.subscriptions.create(b"", name, config, None)
                return "created" if view.created else "same"
            except SubscriptionNotFound:
                # It was deleted in the same turn, before its view was made.
                return expected

        return call, expected

    def _unsubscribe(self, name: str) -> tuple[Any, str]:
        expected = self.model.unsubscribe(name)

        async def call() -> str:
            found = await self.world.engine.subscriptions.delete(b"", name)
            return "deleted" if found else "absent"

        return call, expected

    def _link(self, name: str, path: str) -> tuple[Any, str]:
        async def call() -> str:
            await self.world.engine.subscriptions.link(b"", name, [path])
            return "done"

        return call, self.model.link(name, path)

    def _unlink(self, name: str, path: str) -> tuple[Any, str]:
        async def call() -> str:
            await self.world.engine.subscriptions.unlink(b"", name, path)
            return "done"

        return call, self.model.unlink(name, path)

    def _claim(self, name: str) -> tuple[Any, str]:
        async def call() -> str:
            claim = await self.world.engine.subscriptions.claim(b"", name, "worker")
            return f"claimed {claim.generation}"

        return call, self.model.claim(name, "worker")

    def _wake(self, name: str, is_stale: bool) -> tuple[str, int]:
        entry = self.world.engine.subscriptions.records.entries.get(b"\0" + name.encode())
        if entry is None or entry.state is None:
            return "wake", 1
        return entry.state.wake_id, entry.state.generation - is_stale

    def _ack(
        self, name: str, wanted: list[tuple[str, str]], done: bool, is_stale: bool
    ) -> tuple[Any, str]:
        acks = [(path, self._position(name, path, where)) for path, where in dict(wanted).items()]
        expected = self.model.ack(name, acks, done=done, is_stale=is_stale)
        tokens = [(path, Offset(*position).token()) for path, position in acks]

        async def call() -> str:
            wake = self._wake(name, is_stale)
            issued = await self.world.engine.subscriptions.ack(b"", name, *wake, tokens, done=done)
            return f"acked {issued}"

        return call, expected

    def _position(self, name: str, path: str, where: str) -> Position:
        subscription = self.model.subscriptions.get(name)
        stream = self.model.streams.get(path)
        tail = (0, 0) if stream is None else stream.tail
        link = None if subscription is None else subscription.links.get(path)
        acked = (0, 0) if link is None else link.acked
        if where == "past":
            return tail[0] + 1, tail[1] + 1
        if where == "back" and acked > (0, 0):
            return acked[0] - 1, max(acked[1] - 1, 0)
        # In a wake stream, whose messages are longer, only the tail is known to be a boundary.
        if where == "next" and acked < tail and not path.startswith("w"):
            return acked[0] + 1, acked[1] + 1
        return tail

    def _release(self, name: str, is_stale: bool) -> tuple[Any, str]:
        async def call() -> str:
            wake = self._wake(name, is_stale)
            await self.world.engine.subscriptions.release(b"", name, *wake)
            return "released"

        return call, self.model.release(name, is_stale=is_stale)

    # -- webhooks, time and restarts -------------------------------------------------------------

    @precondition(lambda self: self.subscriber.deliveries)
    @rule(answer=st.sampled_from(["done", "done", "accepted", "failed"]), data=st.data())
    def webhook_answers(self, answer: str, data: st.DataObject) -> None:
        """The last delivery mostly, and sometimes one that is over."""
        latest = len(self.subscriber.deliveries) - 1
        at = max(0, latest - data.draw(st.sampled_from([0, 0, 0, 1, 5]), label="earlier"))
        delivery = self.subscriber.deliveries[at]
        subscription = self._subscription_of(delivery, answer)
        if subscription is not None:
            if answer == "failed":
                self.model.fail(subscription)
            elif answer == "accepted":
                self.model.extend(subscription)
            else:
                self.model.told(subscription, self._numbers(delivery))
        self.model.flush()
        if answer == "failed":
            self.subscriber.failed(delivery)
        else:
            self.subscriber.delivered(delivery, done=answer == "done")
        self.check()

    def _subscription_of(self, delivery: WakeDelivery, answer: str) -> ModelSubscription | None:
        """If the delivery is the one that is under way."""
        subscription = self.model.subscriptions.get(delivery.id)
        entry = self.world.engine.subscriptions.records.entries.get(b"\0" + delivery.id.encode())
        if subscription is None or entry is None or entry.state is None:
            return None
        if entry.state.id != delivery.state.id:
            return None
        generation = delivery.state.generation
        if answer == "done" and self.model.is_leased(subscription, generation):
            # Its worker called back before it answered.
            return subscription
        return subscription if self.model.is_delivering(subscription, generation) else None

    def _numbers(self, delivery: WakeDelivery) -> dict[str, tuple[int, Position]]:
        found = {}
        for told in delivery.streams:
            state = self.world.engine.stream(self.subscriber.key(told.path)).state
            is_same = state is not None and state.id == told.stream_id
            number = self.model.streams[told.path].number if is_same else -1
            found[told.path] = (number, tuple(told.tail))
        return found  # type: ignore[return-value]

    @rule(milliseconds=st.sampled_from([1, 500, 999, 1000, 1200, 5000, 80_000]))
    def wait(self, milliseconds: int) -> None:
        self.model.now += milliseconds
        self.model.tick()
        self.model.flush()
        self.subscriber.tick(milliseconds)
        self.check()

    @rule()
    def reopen(self) -> None:
        self.world.reopen()
        if self.kind == "rocks":
            self.model.restart()
            self.start()
        self.check()

    # -- the whole -----------------------------------------------------------------------------

    def check(self) -> None:
        self.subscriber.settle()
        for path, stream in self.model.streams.items():
            assert self.world.find(self.subscriber.key(path)).tail == stream.tail
        page, _ = self.world.engine.subscriptions.page(b"", "", 100)
        assert sorted(name for name, _ in page) == sorted(self.model.subscriptions)
        for subscription in self.model.subscriptions.values():
            self.check_subscription(subscription)

    def check_subscription(self, expected: ModelSubscription) -> None:
        view = self.subscriber.view(expected.name)
        state = view.state
        if expected.unanswered:
            assert state.retry_at is not None
            expected.retry_at, expected.unanswered = state.retry_at, False
        assert (state.phase.name.lower(), state.generation) == (expected.phase, expected.generation)
        assert (state.holder, state.lease_until, state.retry_at) == (
            expected.holder,
            expected.lease_until,
            expected.retry_at,
        )
        assert state.pending == len(self.model.pending(expected))
        # Rule 2: no wake is owed and missing.
        assert not (state.pending and state.phase is Phase.IDLE)
        if state.is_webhook and state.phase is Phase.WAKING and state.retry_at is None:
            latest = [item for item in self.subscriber.deliveries if item.id == expected.name][-1]
            assert latest.state.wake_id == state.wake_id
        links = {
            path: ("explicit" if link.explicit else "glob", link.acked)
            for path, link in expected.links.items()
        }
        found = {
            item.path: (item.link_type, tuple(max(item.acked, START))) for item in view.streams
        }
        assert found == links
        for item in view.streams:
            at = (state.id, item.path, item.stream_id)
            assert item.acked >= self.acked.get(at, item.acked)
            self.acked[at] = item.acked


class Memory(SubscriptionsAgainstModel):
    pass


class Rocks(SubscriptionsAgainstModel):
    kind = "rocks"


class RocksSlow(SubscriptionsAgainstModel):
    kind = "rocks"
    slow_disk = True


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("machine", "examples"),
    slow_but([(Memory, 30)], [(Memory, 30), (Memory, 400), (Rocks, 60), (RocksSlow, 20)]),
)
def test_any_history_gives_the_responses_of_the_model(
    machine: type[SubscriptionsAgainstModel], examples: int
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def _without_wake(self: Subscriptions, stream: StreamEntry, stream_id: int, tail: Offset) -> None:
    path = stream.key.partition(b"\0")[2]
    for entry in stream.watchers:
        if path not in entry.cursors:
            self.records.move(entry, path, entry.caught_up(path, stream_id, tail))


def _all_that_was_told(
    _engine: Engine, entry: SubscriptionEntry, streams: list[LinkedStream]
) -> dict[bytes, None]:
    """Acknowledges tails of now, and not those that the webhook was told."""
    return {path: None for told in streams if (path := told.path.encode()) in entry.cursors}


@pytest.mark.parametrize(
    ("where", "name", "fault"),
    [
        (Subscriptions, "_appended", _without_wake),
        (Subscriptions, "_deleted", lambda _self, _stream: None),
        (SubscriptionWakes, "write_events", lambda self: self._events.clear()),
        (subscriptions, "told_tails", _all_that_was_told),
    ],
)
def test_the_model_finds_a_planted_fault(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, fault: object
) -> None:
    monkeypatch.setattr(where, name, fault)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Memory,
            settings=settings(
                max_examples=200,
                stateful_step_count=20,
                deadline=None,
                phases=[Phases.generate],
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
