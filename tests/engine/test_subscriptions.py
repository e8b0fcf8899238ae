"""Subscriptions and the disk: nothing is told before it is durable, and a failure is final."""

import asyncio

import pytest

from tailrace.engine.engine import Outcome
from tailrace.engine.errors import StorageFailed
from tailrace.engine.subscriptions.subscriptions import WakeDelivery
from tailrace.protocol.state import Append
from tailrace.protocol.subscription import Phase
from tailrace.protocol.subscription_errors import Fenced, NoPendingWork
from tests.contract.subscribing import Subscriber, pull, webhook
from tests.engine.conftest import Held

TEXT = "text/plain"


def test_a_webhook_is_called_when_the_append_is_durable_and_not_before(held: Held) -> None:
    world, disk = held
    subscriber = Subscriber(world)
    subscriber.start()
    subscriber.create("s", webhook())
    subscriber.append("e/1")
    subscriber.delivered(subscriber.deliveries[0], done=True)
    disk.gate.clear()
    replies: list[Outcome] = []
    world.submit(subscriber.key("e/1"), Append(b"x", TEXT), replies)
    world.until(lambda: disk.syncs > disk.syncs_done)
    world.turn()
    assert (len(subscriber.deliveries), replies) == (1, [])
    # It runs ahead of the disk, and readers do not see that.
    entry = world.engine.subscriptions.records.entries[b"\0s"]
    assert entry.state is not None and entry.durable is not None
    assert (entry.state.phase, entry.durable.phase) == (Phase.WAKING, Phase.IDLE)
    disk.gate.set()
    subscriber.settle()
    assert (len(subscriber.deliveries), len(replies)) == (2, 1)


def test_a_refusal_waits_for_the_state_that_it_was_decided_upon(held: Held) -> None:
    """A worker must not learn of a claim that a crash could undo."""
    world, disk = held
    subscriber = Subscriber(world)
    subscriber.create("s", pull())
    subscriber.append("e/1")
    disk.gate.clear()
    subscriptions = world.engine.subscriptions

    async def claim_twice() -> list[asyncio.Task[object]]:
        tasks: list[asyncio.Task[object]] = [
            asyncio.ensure_future(subscriptions.claim(b"", "s", worker)) for worker in ("a", "b")
        ]
        done, _ = await asyncio.wait(tasks, timeout=0.05)
        assert not done
        return tasks

    tasks = world.run(claim_twice())
    disk.gate.set()
    results = world.run(_gather(tasks))
    assert [type(result).__name__ for result in results] == ["Claim", "AlreadyClaimed"]


async def _gather(tasks: list[asyncio.Task[object]]) -> list[object]:
    return list(await asyncio.gather(*tasks, return_exceptions=True))


@pytest.mark.parametrize("where", ["write", "sync"])
def test_after_a_failure_nothing_is_acknowledged_and_nothing_delivered(
    either: Held, where: str
) -> None:
    world, disk = either
    subscriber = Subscriber(world)
    subscriber.create("pull", pull())
    subscriber.append("e/1")
    claim = subscriber.claim("pull")
    subscriber.start()
    subscriber.create("hook", webhook())
    if where == "write":
        disk.write_error = Exception("IO error")
    else:
        disk.sync_error = Exception("IO error")
    subscriptions = world.engine.subscriptions

    async def work() -> list[object]:
        world.engine.submit(subscriber.key("e/1"), Append(b"x", TEXT), lambda _: None)
        calls = [
            subscriptions.ack(b"", "pull", claim.wake_id, claim.generation, done=True),
            subscriptions.create(b"", "new", pull(), None),
            subscriptions.link(b"", "pull", ["x"]),
            subscriptions.secret("key"),
        ]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    assert [type(result) for result in world.run(work())] == [StorageFailed] * 4
    for call in (
        lambda: subscriptions.view(b"", "pull"),
        lambda: subscriptions.claim(b"", "pull", "w"),
        lambda: subscriptions.delete(b"", "pull"),
        lambda: subscriptions.delete(b"", "nothing"),
        lambda: subscriptions.secret("key"),
    ):
        with pytest.raises(StorageFailed):
            world.run(call())
    world.turn()
    assert subscriber.deliveries == []

    async def late() -> None:
        """What a webhook that was under way does, and the timer."""
        subscriptions.wakes.tick()
        state = subscriptions.records.entries[b"\0hook"].state
        assert state is not None
        delivery = WakeDelivery(b"", "hook", state, [])
        subscriptions.delivered(delivery, done=True)
        subscriptions.failed(delivery, "error")

    world.run(late())


def test_commands_of_one_turn_are_decided_in_order_in_one_commit(held: Held) -> None:
    """An append, a claim, its ack and a new append, before anything is written."""
    world, _ = held
    subscriber = Subscriber(world)
    subscriber.create("s", pull())
    world.create(subscriber.key("e/1"))
    subscriptions, engine = world.engine.subscriptions, world.engine
    batches = engine.commit.batches

    async def work() -> list[object]:
        engine.submit(subscriber.key("e/1"), Append(b"x", TEXT), lambda _: None)
        stream = engine.stream(subscriber.key("e/1"))
        assert stream.state is not None
        claim = asyncio.ensure_future(subscriptions.claim(b"", "s", "w"))
        await asyncio.sleep(0)
        state = subscriptions.find(b"", "s")
        acks = [("e/1", stream.state.tail.token())]
        wake = (b"", "s", state.wake_id, state.generation)
        calls = [
            subscriptions.ack(*wake, acks, done=True),
            subscriptions.claim(b"", "s", "w"),
            subscriptions.release(*wake),
        ]
        return list(await asyncio.gather(claim, *calls, return_exceptions=True))

    claim, issued, none_left, fenced = world.run(work())
    assert getattr(claim, "generation", None) == 1
    assert issued is False
    assert isinstance(none_left, NoPendingWork)
    assert isinstance(fenced, Fenced)
    world.settle()
    assert engine.commit.batches <= batches + 2
    world.reopen()
    assert subscriber.state("s").pending == 0
