"""Group commit: no outcome before it is durable, and one fsync for commands of one turn."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tailrace.engine.base import Store
from tailrace.engine.engine import Outcome, StreamChange
from tailrace.engine.errors import StorageFailed
from tailrace.protocol.errors import StreamNotFound
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import Append, Create, Delete
from tests.contract.harness import World, result
from tests.engine.conftest import Held
from tests.engine.proxy import StoreProxy
from tests.support.together import HANG_S

TEXT = "text/plain"


class TestNoOutcomeBeforeItIsDurable:
    """Rule 1. The disk hangs in an fsync; meanwhile no reply is sent."""

    def stop(self, held: Held) -> None:
        held.world.settle()
        held.disk.gate.clear()

    def go_on(self, held: Held, replies: list[Outcome], count: int) -> list[str]:
        """Open the gate; returns the results."""
        held.world.turn()
        assert replies == []
        held.disk.gate.set()
        held.world.until(lambda: len(replies) == count)
        return [result(reply) for reply in replies]

    def test_a_create(self, held: Held) -> None:
        self.stop(held)
        replies: list[Outcome] = []
        command = Create(id=held.world.engine.new_id(), content_type=TEXT, body=b"x")
        held.world.submit(b"s", command, replies)
        held.world.until(lambda: held.disk.syncs > 0)
        with pytest.raises(StreamNotFound):
            held.world.find()
        assert self.go_on(held, replies, 1) == ["created"]
        assert held.world.read() == (b"x", Offset(1, 1))

    def test_an_append(self, held: Held) -> None:
        """Readers see the old tail, also when they read past it in storage."""
        before = held.world.create(body=b"a")
        self.stop(held)
        replies: list[Outcome] = []
        held.world.submit(b"s", Append(b"b", TEXT), replies)
        held.world.turn()
        assert held.world.find() == before
        assert held.world.read() == (b"a", Offset(1, 1))
        assert self.go_on(held, replies, 1) == ["appended"]
        assert held.world.read() == (b"ab", Offset(2, 2))

    def test_a_close_and_every_refusal_because_of_it(self, held: Held) -> None:
        """409 says that the stream is closed: a crash must not be able to undo that."""
        held.world.create()
        self.stop(held)
        replies: list[Outcome] = []
        held.world.submit(b"s", Append(b"", None, True), replies)
        held.world.turn()
        held.world.submit(b"s", Append(b"x", TEXT), replies)
        held.world.submit(b"s", Append(b"", None, True), replies)
        assert not held.world.find().closed
        assert self.go_on(held, replies, 3) == ["closed", "stream-closed", "closed"]
        assert held.world.find().closed

    def test_a_delete_and_the_404_after_it(self, held: Held) -> None:
        held.world.create(body=b"x")
        self.stop(held)
        replies: list[Outcome] = []
        held.world.submit(b"s", Delete(), replies)
        held.world.turn()
        held.world.submit(b"s", Append(b"y", TEXT), replies)
        assert held.world.read()[0] == b"x"
        assert self.go_on(held, replies, 2) == ["deleted", "stream-not-found"]
        with pytest.raises(StreamNotFound):
            held.world.find()

    def test_a_duplicate_of_what_is_pending(self, held: Held) -> None:
        """A retry on another connection must not be acknowledged before the first is."""
        held.world.create()
        self.stop(held)
        replies: list[Outcome] = []
        command = Append(b"x", TEXT, False, ProducerHeaders("p", 0, 0))
        for _ in range(3):
            held.world.submit(b"s", command, replies)
            held.world.turn()
        assert self.go_on(held, replies, 3) == ["appended", "duplicate", "duplicate"]
        assert held.world.read()[0] == b"x"

    def test_fencing_gaps_and_stream_seq_that_rest_on_what_is_pending(self, held: Held) -> None:
        held.world.create()
        self.stop(held)
        replies: list[Outcome] = []
        for command in (
            Append(b"x", TEXT, False, ProducerHeaders("p", 1, 0), "5"),
            Append(b"x", TEXT, False, ProducerHeaders("p", 0, 0)),
            Append(b"x", TEXT, False, ProducerHeaders("p", 1, 5)),
            Append(b"x", TEXT, stream_seq="4"),
            Create(id=99, content_type="image/png"),
            Create(id=99, content_type=TEXT),
        ):
            held.world.submit(b"s", command, replies)
        assert self.go_on(held, replies, 6) == [
            "appended",
            "producer-fenced",
            "producer-gap",
            "seq-regression",
            "stream-exists",
            "existed",
        ]

    def test_a_refusal_of_a_stream_that_nothing_is_pending_on_does_not_wait(
        self, held: Held
    ) -> None:
        held.world.create()
        held.world.create(b"t", closed=True)
        self.stop(held)
        pending: list[Outcome] = []
        held.world.submit(b"s", Append(b"x", TEXT), pending)
        held.world.turn()
        at_once: list[Outcome] = []
        held.world.submit(b"t", Append(b"x", TEXT), at_once)
        held.world.submit(b"nobody", Delete(), at_once)
        assert [result(reply) for reply in at_once] == ["stream-closed", "stream-not-found"]
        assert pending == []

    def test_readers_are_woken_after_the_states_are_published(self, held: Held) -> None:
        """A listener can read the commit, and replies come after that."""
        world = held.world
        world.create(body=b"a")
        order: list[object] = []

        class Listener:
            def committed(self, change: StreamChange) -> None:
                order.append(world.read()[0])
                assert change.before is not None and change.after is not None
                assert (change.before.tail, change.after.tail) == (Offset(1, 1), Offset(3, 3))
                assert [record.payload for record in change.records] == [b"b", b"c"]

        world.engine.find(b"s").listener = Listener()
        self.stop(held)
        replies: list[Outcome] = []

        async def submit() -> None:
            world.engine.submit(b"s", Append(b"b", TEXT), lambda outcome: order.append(1))
            world.engine.submit(b"s", Append(b"c", TEXT), replies.append)

        world.run(submit())
        world.turn()
        assert order == []
        assert self.go_on(held, replies, 1) == ["appended"]
        assert order == [b"abc", 1]


class TestOneBatchAtATime:
    """Rule 2."""

    def test_what_arrives_in_one_turn_shares_one_write_and_one_sync(self, either: Held) -> None:
        world, disk = either
        world.settle()
        writes, syncs = disk.writes, disk.syncs
        replies: list[Outcome] = []

        async def one_turn() -> None:
            for at in range(50):
                key = b"%d" % (at % 10)
                if at < 10:
                    command = Create(id=world.engine.new_id(), content_type=TEXT)
                    world.engine.submit(key, command, replies.append)
                else:
                    world.engine.submit(key, Append(b"%d" % at, TEXT), replies.append)

        world.run(one_turn())
        world.until(lambda: len(replies) == 50)
        assert (disk.writes - writes, disk.syncs - syncs) == (1, 1)

    def test_what_arrives_during_a_sync_goes_into_the_next(self, held: Held) -> None:
        """And nothing else is written meanwhile, however many turns the loop makes."""
        world, disk = held
        world.create()
        world.settle()
        writes, syncs = disk.writes, disk.syncs
        disk.gate.clear()
        replies: list[Outcome] = []
        for at in range(20):
            world.submit(b"s", Append(b"%d," % at, TEXT), replies)
            world.turn()
        world.until(lambda: disk.syncs > syncs)
        assert (disk.writes - writes, disk.syncs - syncs) == (1, 1)
        assert replies == []
        disk.gate.set()
        world.until(lambda: len(replies) == 20)
        assert (disk.writes - writes, disk.syncs - syncs) == (2, 2)
        assert world.read()[0] == b"".join(b"%d," % at for at in range(20))

    def test_replies_come_in_the_order_of_commands(self, either: Held) -> None:
        world, _ = either
        world.create()
        tails: list[int] = []

        def note(outcome: Outcome) -> None:
            assert isinstance(outcome, tuple) and outcome[1] is not None
            tails.append(outcome[1].tail.message)

        async def submit() -> None:
            for _ in range(30):
                world.engine.submit(b"s", Append(b"x", TEXT), note)
                await asyncio.sleep(0)

        world.run(submit())
        world.until(lambda: len(tails) == 30)
        assert tails == list(range(1, 31))

    def test_what_a_reply_submits_is_not_lost(self, either: Held) -> None:
        """A client that sends its next request from within the response to the last."""
        world, _ = either
        world.create()
        count = 0

        def again(outcome: Outcome) -> None:
            nonlocal count
            count += 1
            if count < 20:
                world.engine.submit(b"s", Append(b"x", TEXT), again)

        async def start() -> None:
            world.engine.submit(b"s", Append(b"x", TEXT), again)

        world.run(start())
        world.until(lambda: count == 20)
        assert world.read()[1] == Offset(20, 20)

    def test_an_unchanged_batch_is_not_written(self, either: Held) -> None:
        world, disk = either
        world.create(closed=True)
        world.settle()
        writes = disk.writes
        for command in (
            Append(b"x", TEXT),
            Append(b"", None, True),
            Create(id=9, content_type=TEXT, closed=True),
        ):
            world.do(b"s", command)
        world.read()
        world.turn()
        assert disk.writes == writes


class TestOneBatchOneStream:
    """Everything that can happen to one stream in one batch."""

    def outcomes(self, world: World, work: Callable[[list[Outcome]], None]) -> list[str]:
        replies: list[Outcome] = []

        async def submit() -> None:
            work(replies)

        world.run(submit())
        world.settle()
        return [result(reply) for reply in replies]

    def test_delete_and_create(self, held: Held) -> None:
        world = held.world
        old = world.create(body=b"old")
        changes: list[StreamChange] = []

        class Listener:
            def committed(self, change: StreamChange) -> None:
                changes.append(change)

        world.engine.find(b"s").listener = Listener()

        def work(replies: list[Outcome]) -> None:
            engine = world.engine
            engine.submit(b"s", Append(b"more", TEXT), replies.append)
            engine.submit(b"s", Delete(), replies.append)
            command = Create(id=engine.new_id(), content_type=TEXT, body=b"new")
            engine.submit(b"s", command, replies.append)
            engine.submit(b"s", Append(b"!", TEXT), replies.append)

        assert self.outcomes(world, work) == ["appended", "deleted", "created", "appended"]
        assert world.read() == (b"new!", Offset(2, 4))
        # The listener of the old stream must learn of its deletion.
        assert [change.deleted for change in changes] == [True]
        world.engine.find(b"s").listener = None
        world.evict()
        assert world.find().id > old.id
        assert world.read() == (b"new!", Offset(2, 4))
        world.sweep()
        assert list(world.store.scan(old.id, 0, 100)) == []
        assert world.read() == (b"new!", Offset(2, 4))

    def test_create_and_delete(self, held: Held) -> None:
        world = held.world

        def work(replies: list[Outcome]) -> None:
            engine = world.engine
            for _ in range(3):
                command = Create(id=engine.new_id(), content_type=TEXT, ttl_s=5, body=b"x")
                engine.submit(b"s", command, replies.append)
                engine.submit(b"s", Delete(), replies.append)

        assert self.outcomes(world, work) == ["created", "deleted"] * 3
        with pytest.raises(StreamNotFound):
            world.find()
        world.sweep()
        world.now += 10_000
        world.sweep()
        assert (world.store.due(world.now, 9), world.store.garbage(9)) == ([], [])

    def test_a_close_and_a_touch_later_keep_each_other(self, held: Held) -> None:
        world = held.world
        world.create(ttl_s=60)
        state = world.append(body=b"x", closes=True)
        world.sweep()
        world.evict()
        assert world.find() == state


def test_a_batch_is_whole_for_a_reader_that_looks_all_the_time(held: Held) -> None:
    """Bytes that were appended together with the closure are seen together with it."""
    world, disk = held
    world.create()
    disk.gate.clear()
    replies: list[Outcome] = []
    world.submit(b"s", Append(b"last", TEXT, True), replies)
    seen = set()
    for _ in range(5):
        world.turn()
        state = world.find()
        seen.add((state.tail, state.closed))
    disk.gate.set()
    world.until(lambda: bool(replies))
    state = world.find()
    seen.add((state.tail, state.closed))
    assert seen == {(START, False), (Offset(1, 4), True)}


def test_a_reply_that_fails_does_not_affect_the_others(either: Held) -> None:
    """
    Goal: an error in one connection's code leaves the others of its batch with their responses.

    Method: a reply that raises, between two that do not; and a listener that raises.
    """
    world, _ = either
    world.create()
    replies: list[Outcome] = []
    errors: list[object] = []

    class Listener:
        def committed(self, change: StreamChange) -> None:
            raise RuntimeError("a reader's connection is in a bad state")

    def broken(outcome: Outcome) -> None:
        raise RuntimeError("a writer's connection is in a bad state")

    async def submit() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        engine = world.engine
        engine.find(b"s").listener = Listener()
        engine.submit(b"s", Append(b"a", TEXT), replies.append)
        engine.submit(b"s", Append(b"b", TEXT), broken)
        engine.submit(b"s", Append(b"c", TEXT), replies.append)

    world.run(submit())
    world.settle()
    world.turn()
    assert [result(reply) for reply in replies] == ["appended", "appended"]
    world.engine.find(b"s").listener = None


@pytest.mark.parametrize("where", ["write", "sync"])
def test_the_moment_between_two_batches_does_not_come_after_a_failure(
    tmp_path: Path, where: str
) -> None:
    """A backup of a server whose storage failed is refused at once."""
    disks: list[StoreProxy] = []

    def wrap(store: Store) -> Store:
        disks.append(StoreProxy(store))
        return disks[-1]

    with World("memory", tmp_path, wrap=wrap) as world:
        world.create(b"s")
        setattr(disks[0], f"{where}_error", Exception("IO error: No such device"))
        assert result(world.do(b"s", Append(b"x", TEXT))) == "storage-failed"

        async def take() -> None:
            async with asyncio.timeout(HANG_S):
                work = partial(pytest.fail, "there is no such moment")
                await world.engine.commit.run_when_idle(work)

        with pytest.raises(StorageFailed):
            world.run(take())
