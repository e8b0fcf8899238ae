"""The background: on its own clock, beside commits, and never given up."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.engine import sweep
from tailrace.engine.base import Garbage, Transaction
from tailrace.engine.engine import Outcome
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import Append, Create, Delete
from tests.contract.harness import KINDS, World
from tests.engine.conftest import Held

TEXT = "text/plain"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a test need not wait half seconds."""
    monkeypatch.setattr(sweep, "SWEEP_S", 0.01)
    monkeypatch.setattr(sweep, "SWEEP_AGAIN_S", 0.001)


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path, _often: None) -> Iterator[World]:
    with World(request.param, tmp_path / "data") as opened:
        yield opened


def test_expired_streams_are_deleted_without_a_request(world: World) -> None:
    stream_id = world.create(ttl_s=1, body=b"x" * 100).id
    world.now += 1000
    world.until(lambda: world.store.load(b"s") is None and not world.store.garbage(9))
    assert list(world.store.scan(stream_id, 0, 100)) == []
    assert world.store.due(world.now, 9) == []


@pytest.mark.parametrize("slow", [False, True], ids=["fast disk", "slow disk"])
def test_a_busy_server_is_swept_too(world: World, slow: bool) -> None:
    """
    Goal: room is given back under constant load, which is when it is needed.

    Method: a command in every turn of the loop, for long against the sweeper's interval; a stream
    that was deleted and one that expired must be reclaimed meanwhile.
    """
    if slow:
        world.slow_disk()
    world.create(b"busy")
    world.create(b"deleted", body=b"x" * 100)
    world.create(b"expired", ttl_s=1)
    world.delete(b"deleted")
    world.now += 1000
    done = False
    ended = time.monotonic() + 60

    async def busy() -> None:
        nonlocal done
        while not done and time.monotonic() < ended:
            world.engine.submit(b"busy", Append(b"x", TEXT), lambda outcome: None)
            await asyncio.sleep(0)
            done = not world.store.garbage(9) and world.store.load(b"expired") is None

    world.run(busy())
    assert done
    world.settle()


def test_sweeping_and_commits_do_not_disturb_each_other(world: World) -> None:
    """Streams that live for a moment, written while they end; afterwards nothing is left."""
    replies: list[Outcome] = []

    async def churn() -> None:
        for at in range(300):
            key = b"%d" % (at % 7)
            create = Create(id=world.engine.new_id(), content_type=TEXT, ttl_s=1, body=b"first")
            world.engine.submit(key, create, replies.append)
            world.engine.submit(key, Append(b"more", TEXT), replies.append)
            if at % 5 == 0:
                world.engine.submit(key, Delete(), replies.append)
            world.now += 90
            if at % 3 == 0:
                await asyncio.sleep(0.001)

    world.run(churn())
    world.settle()
    world.now += 5000

    def nothing_left() -> bool:
        return not world.store.due(2**50, 9) and not world.store.garbage(9)

    world.until(nothing_left)
    assert all(world.store.load(b"%d" % at) is None for at in range(7))
    assert all(
        list(world.store.scan(stream_id, 0, 10**6)) == []
        for stream_id in range(1, world.engine.new_id())
    )
    assert world.engine.failure is None


def test_a_stream_does_not_expire_twice(held: Held) -> None:
    """The disk hangs while the sweeper's own batch is on its way: it must wait, not repeat."""
    world, disk = held
    world.create(ttl_s=1)
    world.settle()
    disk.gate.clear()
    world.now += 1000
    writes = disk.writes
    world.until(lambda: disk.writes == writes + 1)

    async def a_while() -> None:
        await asyncio.sleep(0.1)

    world.run(a_while())
    assert disk.writes == writes + 1
    disk.gate.set()
    world.until(lambda: world.store.load(b"s") is None and not world.store.garbage(9))
    new = world.create(body=b"new")
    world.run(a_while())
    assert world.find() == new
    assert world.read() == (b"new", Offset(1, 3))


def test_a_sweep_that_fails_is_followed_by_the_next(held: Held) -> None:
    """
    Goal: the background does not silently end for good.

    Method: the index cannot be read for a moment; later, what is over must still end.
    """
    world, disk = held
    world.create(ttl_s=1)
    world.now += 1000
    errors: list[object] = []
    world.engine.commit._loop.set_exception_handler(lambda _, context: errors.append(context))
    disk.due_error = OSError("Too many open files")

    async def a_while() -> None:
        await asyncio.sleep(0.1)

    world.run(a_while())
    disk.due_error = None
    deadline = time.monotonic() + 60

    def over() -> bool:
        return world.store.load(b"s") is None or time.monotonic() > deadline

    world.until(over)
    assert world.store.load(b"s") is None


def test_closing_in_the_middle_of_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing interrupts it and waits for it; all that was committed is there afterwards."""
    monkeypatch.setattr(sweep, "COMPACT_BYTES_MIN", 1)
    with World("rocks", tmp_path / "data") as world:
        world.create(b"kept", body=b"kept" * 1000)
        for at in range(5):
            world.create(b"%d" % at, body=b"x" * 100_000)
            world.delete(b"%d" % at)
        world.until(lambda: world.engine._sweeper._compaction is not None)
        world.append(b"kept", b"!")
        world.reopen()
        assert world.read(b"kept") == (b"kept" * 1000 + b"!", Offset(2, 4001))
        world.append(b"kept", b"!")


def test_reclaiming_waits_for_a_batch_and_not_for_a_quiet_moment(held: Held) -> None:
    """
    Goal: on a slow disk with constant load there is always a batch under way, and still room is
    given back.

    Method: look while one is under way, never look again, and let it pass.
    """
    world, disk = held
    # Before anything: on a slow machine it would have its turn in between.
    world.engine._sweeper._timer.cancel()
    world.create(b"old", body=b"x" * 100)
    world.create(b"busy")
    world.delete(b"old")
    world.settle()
    disk.gate.clear()
    world.submit(b"busy", Append(b"x", TEXT))
    world.until(lambda: world.engine.commit.syncing is not None)
    world.engine._sweeper._sweep()
    world.engine._sweeper._timer.cancel()
    assert world.store.garbage(9) != []
    disk.gate.set()
    world.until(lambda: not world.store.garbage(9))


def test_what_expires_all_the_time_does_not_keep_the_rest_from_being_reclaimed(
    world: World,
) -> None:
    """One look does both: it ends what is over, and reclaims what ended before."""
    world.create(b"old", body=b"x" * 100)
    world.delete(b"old")
    world.create(b"brief", ttl_s=1)
    world.settle()
    world.engine._sweeper._timer.cancel()
    sweeper = world.engine._sweeper
    world.until(lambda: not (sweeper._expiring or sweeper._reclaiming))
    world.now += 1000
    before = [entry.id for entry in world.store.garbage(9)]
    world.engine._sweeper._sweep()
    world.engine._sweeper._timer.cancel()
    world.settle()
    assert not {entry.id for entry in world.store.garbage(9)} & set(before)
    assert world.store.load(b"brief") is None


def test_garbage_that_cannot_be_reclaimed_does_not_block_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage to one stream concerns that one: it stays where it is, until a restart."""
    first = world.create(b"damaged", body=b"x").id
    world.create(b"other", body=b"x")
    kind = type(world.store.begin())
    reclaim = kind.reclaim

    def reclaims(self: Transaction, garbage: Garbage) -> None:
        if garbage.id == first:
            raise OSError("a block cannot be read")
        reclaim(self, garbage)

    monkeypatch.setattr(kind, "reclaim", reclaims)
    world.run(_quietly())
    world.delete(b"damaged")
    world.delete(b"other")
    world.until(lambda: [entry.id for entry in world.store.garbage(9)] == [first])


async def _quietly() -> None:
    """The exceptions that the loop reports are expected here."""
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
