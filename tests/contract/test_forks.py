"""Forks over every store: what is shared, what is kept, and what is released when."""

import hashlib
import time
from itertools import pairwise

import pytest

from tailrace.engine import forks
from tailrace.engine.engine import Outcome
from tailrace.engine.errors import StorageDamaged
from tailrace.engine.forks import HELD_COUNT_MAX, STEPS_MAX
from tailrace.engine.memory import MemoryStore
from tailrace.engine.search import find_byte, find_message, find_time
from tailrace.protocol.errors import StreamNotFound, StreamSoftDeleted
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import (
    Append,
    Command,
    Create,
    Delete,
    ForkRequest,
    Publish,
    SnapshotInfo,
    StreamState,
)
from tests.contract.harness import World, result
from tests.contract.subscribing import Subscriber, pull

JSON = "application/json"
DEPTH = 1000


def fork(
    world: World, target: bytes, source: bytes, at: Offset | None = None, sub: int = 0
) -> StreamState:
    request = ForkRequest(source, at, sub)
    return world.state(target, Create(id=world.engine.new_id(), content_type=None, fork=request))


def publish(world: World, key: bytes, at: Offset, content: bytes = b"state") -> StreamState:
    async def take() -> int:
        return world.engine.take_id()

    digest = hashlib.sha256(content).digest()
    number = world.run(take())
    snapshot = SnapshotInfo(at, number, len(content), "text/plain", digest, inline=True)
    return world.state(key, Publish(world.find(key).id, snapshot, content))


def gone(world: World, key: bytes) -> bool:
    """Whether a stream was removed, and is not only soft-deleted."""
    try:
        world.find(key)
    except StreamNotFound:
        return True
    except StreamSoftDeleted:
        return False
    raise AssertionError(f"{key!r} exists")


def test_a_fork_does_not_copy(world: World) -> None:
    world.create(b"a", body=b"x" * 100_000)
    state = fork(world, b"b", b"a")
    world.append(b"b", b"tail")
    stored = list(world.store.scan(state.id, 0, 1 << 30))
    assert len(stored) == 1 and len(stored[0]) < 100
    assert world.read(b"b")[0] == b"x" * 100_000 + b"tail"


def test_later_appends_to_the_source_never_show(world: World) -> None:
    world.create(b"a", body=b"1")
    fork(world, b"b", b"a")
    world.append(b"a", b"2")
    world.append(b"b", b"3")
    assert (world.read(b"a")[0], world.read(b"b")[0]) == (b"12", b"13")


def test_a_fork_may_be_inside_of_a_batch(world: World) -> None:
    world.create(b"a", content_type=JSON, body=b"[1,2,3,4]")
    fork(world, b"b", b"a", Offset(2, 4))
    fork(world, b"c", b"a", START, 3)
    fork(world, b"d", b"c", Offset(1, 2), 1)
    assert [world.read(key)[0] for key in (b"b", b"c", b"d")] == [b"1,2,", b"1,2,3,", b"1,2,"]
    world.append(b"d", b"[7,8]", content_type=JSON)
    assert world.read(b"d", Offset(1, 2))[0] == b"2,7,8,"


def test_offsets_are_found_by_message_byte_and_time(world: World) -> None:
    world.create(b"a", content_type=JSON)
    for batch in (b"[10,11]", b"[12,13,14]"):
        world.now += 1000
        world.append(b"a", batch, content_type=JSON)
    key = b"a"
    for number in range(5):
        target = b"fork-%d" % number
        fork(world, target, key)
        world.now += 1000
        world.append(target, b"[20,21]", content_type=JSON)
        key = target
    state = world.find(key)
    assert state.tail.message == 15
    for message in range(16):
        assert find_message(world.store, state, message) == Offset(message, 3 * message)
        assert find_byte(world.store, state, 3 * message + 1).message == min(message, 15)
    assert find_time(world.store, state, world.now).message == 13
    assert find_time(world.store, state, world.now - 5000).message == 2


def test_a_fork_of_what_is_not_durable_yet(world: World) -> None:
    """The source is created, appended to and forked in one turn; then one boundary before."""
    replies: list[Outcome] = []

    async def work() -> None:
        engine = world.engine
        engine.submit(b"a", Create(id=engine.new_id(), content_type=JSON), replies.append)
        engine.submit(b"a", Append(b"[1,2]", JSON), replies.append)
        for target, at in ((b"tail", None), (b"inside", Offset(1, 2)), (b"after", Offset(2, 4))):
            request = ForkRequest(b"a", at)
            command = Create(id=engine.new_id(), content_type=None, fork=request)
            engine.submit(target, command, replies.append)
        # Decided before the forks are durable, and so part of none of them.
        engine.submit(b"a", Append(b"[3]", JSON), replies.append)

    world.run(work())
    world.until(lambda: len(replies) == 6)
    assert sorted(map(result, replies)) == ["appended"] * 2 + ["created"] * 4
    found = [world.read(key)[0] for key in (b"tail", b"inside", b"after", b"a")]
    assert found == [b"1,2,", b"1,", b"1,2,", b"1,2,3,"]
    assert world.find(b"a").forks == 3
    ids = {world.find(key).id for key in (b"a", b"tail", b"inside", b"after")}
    assert len(ids) == 4


def test_a_fork_that_waits_for_a_commit_is_answered_if_it_cannot_be_decided(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise RuntimeError("a record cannot be read")

    monkeypatch.setattr(forks, "find_fork_point", unreadable)
    world.create(b"a", body=b"1")
    replies: list[Outcome] = []

    async def work() -> None:
        engine = world.engine
        for body in (b"2", b"3"):
            engine.submit(b"a", Append(body, "text/plain"), lambda _: None)
        request = ForkRequest(b"a", Offset(2, 2))
        command = Create(id=engine.new_id(), content_type=None, fork=request)
        engine.submit(b"b", command, replies.append)

    world.run(work())
    world.until(lambda: bool(replies))
    assert isinstance(replies[0], StorageDamaged)
    assert world.find(b"a").forks == 0


@pytest.mark.parametrize("first", ["fork", "delete"])
def test_fork_and_delete_in_one_turn(world: World, first: str) -> None:
    world.create(b"a", body=b"1")
    replies: list[Outcome] = []

    async def work() -> None:
        engine = world.engine
        command = Create(id=engine.new_id(), content_type=None, fork=ForkRequest(b"a"))
        order: list[tuple[bytes, Command]] = [(b"b", command), (b"a", Delete())]
        for key, item in order if first == "fork" else reversed(order):
            engine.submit(key, item, replies.append)

    world.run(work())
    world.until(lambda: len(replies) == 2)
    if first == "fork":
        assert list(map(result, replies)) == ["created", "deleted"]
        assert not gone(world, b"a")
        assert world.read(b"b")[0] == b"1"
        world.delete(b"b")
        assert gone(world, b"a") and gone(world, b"b")
    else:
        assert list(map(result, replies)) == ["deleted", "fork-source-not-found"]
        assert gone(world, b"a") and gone(world, b"b")


def test_fork_of_a_source_that_expires_in_the_same_turn(world: World) -> None:
    world.create(b"a", body=b"1", ttl_s=1)
    fork(world, b"b", b"a")
    world.now += 1000
    command = Create(id=world.engine.new_id(), content_type=None, fork=ForkRequest(b"a"))
    # The fork has expired as well, but has not been removed yet.
    assert result(world.do(b"c", command)) == "fork-source-gone"
    world.sweep()
    assert gone(world, b"a") and gone(world, b"b")
    assert result(world.do(b"c", command)) == "fork-source-not-found"


def test_a_refused_fork_leaves_no_reference(world: World) -> None:
    world.create(b"a", body=b"1")
    for request, content_type in (
        (ForkRequest(b"a", Offset(9, 9)), None),
        (ForkRequest(b"a", START, 2), None),
        (ForkRequest(b"a"), JSON),
    ):
        command = Create(id=world.engine.new_id(), content_type=content_type, fork=request)
        world.do(b"b", command)
    assert world.find(b"a").forks == 0
    world.delete(b"a")
    assert gone(world, b"a")


def test_references_survive_eviction_and_restart(world: World) -> None:
    world.create(b"a", body=b"1")
    for target in (b"b", b"c"):
        fork(world, target, b"a")
    world.reopen()
    assert world.find(b"a").forks == 2
    world.delete(b"a")
    world.reopen()
    assert not gone(world, b"a")
    assert world.read(b"c")[0] == b"1"
    world.delete(b"b")
    world.reopen()
    assert not gone(world, b"a")
    world.delete(b"c")
    assert gone(world, b"a")


def test_a_chain_of_a_thousand(world: World) -> None:
    """
    Goal: depth costs nothing: no recursion, no read that follows the chain, removal in steps.

    Method: each fork appends one message. Read the last one from the beginning and from its end,
    soft-delete all the others, then delete it.
    """
    keys = [b"%d" % number for number in range(DEPTH)]
    world.create(keys[0], body=b"0.")
    began = time.monotonic()

    async def create() -> None:
        for before, key in pairwise(keys):
            request = ForkRequest(before)
            command = Create(id=world.engine.new_id(), content_type=None, fork=request)
            world.engine.submit(key, command, lambda _: None)
            world.engine.submit(key, Append(key + b".", "text/plain"), lambda _: None)

    # In one turn: each fork is decided upon a source that is not stored yet.
    world.run(create())
    world.settle()
    expected = b"".join(key + b"." for key in keys)
    for _ in range(2):
        assert world.read(keys[-1])[0] == expected
        state = world.find(keys[-1])
        found = find_message(world.store, state, DEPTH // 2)
        assert found.message == DEPTH // 2
        assert world.read(keys[-1], found, 1)[0] == b"%d." % (DEPTH // 2)
        world.reopen()

    async def delete() -> None:
        for key in keys[:-1]:
            world.engine.submit(key, Delete(), lambda _: None)

    world.run(delete())
    world.settle()
    assert not any(gone(world, key) for key in keys[:-1])
    assert world.read(keys[-1])[0] == expected
    world.delete(keys[-1])
    # One batch removes a bounded number of them.
    assert sum(gone(world, key) for key in keys) == STEPS_MAX + 1
    world.reopen()
    for _ in range(DEPTH // STEPS_MAX):
        world.sweep()
    assert all(gone(world, key) for key in keys)
    for _ in range(DEPTH // 64):
        world.sweep()
    if isinstance(world.store, MemoryStore):
        assert world.store.records == {}
    assert time.monotonic() - began < 60


class TestSnapshots:
    def test_a_source_whose_snapshot_moved_on_still_feeds_its_forks(self, world: World) -> None:
        world.create(b"a", body=b"1")
        world.append(b"a", b"2")
        publish(world, b"a", Offset(1, 1), b"first")
        fork(world, b"b", b"a")
        world.append(b"a", b"3")
        publish(world, b"a", Offset(3, 3), b"second")
        world.sweep()
        world.reopen()
        state = world.find(b"b")
        assert world.read(b"b", Offset(1, 1))[0] == b"2"
        assert state.snapshot is not None
        assert world.store.read_snapshot(state.snapshot, 0) == b"first"
        # When the last fork is gone, what was kept for it is reclaimed.
        assert world.find(b"a").held == 2 + len(b"first")
        world.delete(b"b")
        assert world.find(b"a").held == 0
        world.sweep()
        world.sweep()
        assert world.store.held(b"", b"\xff", 9) == []
        assert list(world.store.scan(world.find(b"a").id, 0, 3)) == []
        if isinstance(world.store, MemoryStore):
            assert list(world.store.snapshots.values()) == [[b"second"]]

    def test_a_fork_has_snapshots_of_its_own(self, world: World) -> None:
        world.create(b"a", body=b"1")
        world.append(b"a", b"2")
        publish(world, b"a", Offset(1, 1), b"first")
        fork(world, b"b", b"a")
        world.append(b"b", b"3")
        publish(world, b"b", Offset(2, 2), b"its own")
        world.sweep()
        # That of the source is untouched.
        state = world.find(b"a")
        assert state.snapshot is not None
        assert world.store.read_snapshot(state.snapshot, 0) == b"first"
        assert world.read(b"a", Offset(1, 1))[0] == b"2"
        publish(world, b"b", Offset(3, 3), b"later")
        world.delete(b"b")
        for _ in range(3):
            world.sweep()
        assert world.store.read_snapshot(state.snapshot, 0) == b"first"
        assert world.store.garbage(9) == []

    def test_a_new_fork_keeps_what_is_published_after_an_old_one_was_removed(
        self, world: World
    ) -> None:
        """The release of what was kept for the first fork is still queued."""
        world.create(b"a", body=b"1")
        fork(world, b"b", b"a")
        publish(world, b"a", Offset(1, 1), b"first")
        world.append(b"a", b"2")
        world.delete(b"b")
        fork(world, b"c", b"a")
        publish(world, b"a", Offset(2, 2), b"second")
        for _ in range(3):
            world.sweep()
        state = world.find(b"c")
        assert world.read(b"c", Offset(1, 1))[0] == b"2"
        assert state.snapshot is not None
        assert world.store.read_snapshot(state.snapshot, 0) == b"first"

    def test_much_that_is_kept_is_released_in_steps(self, world: World) -> None:
        world.create(b"a")
        fork(world, b"b", b"a")
        state = world.append(b"a", b"x")
        for _ in range(HELD_COUNT_MAX):
            publish(world, b"a", state.tail)
            state = world.append(b"a", b"x")
        world.delete(b"b")
        world.sweep()
        world.reopen()
        for _ in range(20):
            world.sweep()
        assert world.store.held(b"", b"\xff", 9) == []
        assert world.store.garbage(9) == []


def test_a_pinned_fork_keeps_what_it_inherits(world: World) -> None:
    """A bootstrap of a fork reads on while the fork and its sources are removed."""
    world.create(b"a", body=b"1")
    fork(world, b"b", b"a")
    world.append(b"b", b"2")
    fork(world, b"c", b"b")
    state = world.find(b"c")
    assert state.fork is not None
    segments = [item.id for item in state.fork.segments()]
    release = world.engine.pins.hold(state)
    for key in (b"a", b"b", b"c"):
        world.delete(key)
    for _ in range(3):
        world.sweep()
    assert all(gone(world, key) for key in (b"a", b"b", b"c"))
    assert [len(list(world.store.scan(number, 0, 9))) for number in segments] == [1, 1]
    release()
    for _ in range(3):
        world.sweep()
    assert [len(list(world.store.scan(number, 0, 9))) for number in segments] == [0, 0]


class TestSubscriptions:
    """A fork is a stream like any other; a soft-deleted stream is none."""

    def test_a_fork_that_matches_is_linked_from_its_beginning(self, world: World) -> None:
        subscriber = Subscriber(world)
        subscriber.append("a", b"1")
        subscriber.create("s", pull())
        fork(world, subscriber.key("e/1"), subscriber.key("a"))
        subscriber.settle()
        (stream,) = subscriber.claim("s").streams
        assert (stream.path, stream.acked_offset) == ("e/1", "-1")
        assert stream.tail_offset == Offset(1, 1).token()
        assert stream.has_pending

    def test_a_fork_that_inherits_nothing_is_no_work(self, world: World) -> None:
        subscriber = Subscriber(world)
        subscriber.append("a", b"1")
        subscriber.create("s", pull())
        fork(world, subscriber.key("e/1"), subscriber.key("a"), START)
        assert subscriber.state("s").pending == 0
        subscriber.append("e/1", b"2")
        assert subscriber.state("s").pending == 1

    def test_soft_deletion_drops_links(self, world: World) -> None:
        subscriber = Subscriber(world)
        subscriber.append("e/1", b"1")
        subscriber.create("s", pull(streams=("e/1",)))
        subscriber.append("e/1", b"2")
        assert subscriber.state("s").pending == 1
        fork(world, subscriber.key("f"), subscriber.key("e/1"))
        world.delete(subscriber.key("e/1"))
        assert subscriber.cursors("s") == {}
        assert subscriber.state("s").pending == 0
        subscriber.create("later", pull())
        assert subscriber.cursors("later") == {}
        # When it is removed, there is nothing left to drop.
        world.delete(subscriber.key("f"))
        world.sweep()
        assert gone(world, subscriber.key("e/1"))
        world.reopen()
        assert subscriber.cursors("s") == subscriber.cursors("later") == {}
