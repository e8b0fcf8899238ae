"""What changed in a bucket since a position, over every store."""

import asyncio
import hashlib

import pytest

from tailrace.engine.commit import CommitBatch
from tailrace.engine.listing import ChangedPage
from tailrace.protocol.errors import BucketNotFound, PositionGone
from tailrace.protocol.state import Append, Publish, SnapshotInfo
from tests.contract.conftest import OpenWorld
from tests.contract.harness import World

BUCKET = b"bucket"


def key(name: str) -> bytes:
    return BUCKET + b"\0" + name.encode()


def put_bucket(world: World) -> None:
    async def work() -> None:
        done = asyncio.get_running_loop().create_future()
        world.engine.buckets.create(BUCKET, done.set_result)
        await done

    world.run(work())


def position(world: World) -> str:
    return world.run(world.engine.listing.page(BUCKET, b"", b"", 1000)).position


def changed(world: World, since: str, prefix: bytes = b"", most: int = 1000) -> ChangedPage:
    return world.run(world.engine.listing.changed(BUCKET, prefix, since, most))


def names(page: ChangedPage) -> list[str]:
    """Those that are gone with a minus."""
    return [name.decode() + ("-" if state is None else "") for name, state in page.streams]


@pytest.fixture
def bucketed(world: World) -> World:
    put_bucket(world)
    for name in ("a", "b", "c"):
        world.create(key(name))
    return world


def test_everything_that_happens_to_a_stream(bucketed: World) -> None:
    world = bucketed
    at = position(world)
    assert changed(world, at)[:2] == ([], False)
    state = world.append(key("b"))
    page = changed(world, at)
    assert page.streams == [(b"b", state)] and not page.has_more
    at = page.position
    world.append(key("c"), b"", closes=True)
    world.create(key("d"))
    digest = hashlib.sha256(b"x").digest()
    snapshot = SnapshotInfo(state.tail, world.engine.take_id(), 1, "a/b", digest, True)
    world.state(key("b"), Publish(state.id, snapshot, b"x"))
    world.delete(key("a"))
    page = changed(world, at)
    assert names(page) == ["c", "d", "b", "a-"]
    assert names(changed(world, at, prefix=b"b")) == ["b"]
    world.create(key("a"), body=b"again")
    assert names(changed(world, page.position)) == ["a"]
    assert names(changed(world, at)) == ["c", "d", "b", "a"]


def test_a_retry_and_a_refusal_are_not_changes(bucketed: World) -> None:
    world = bucketed
    at = position(world)
    world.do(key("a"), Append(b"x", "text/html"))
    world.create(key("a"))
    assert names(changed(world, at)) == []


def test_a_recorded_read_is_not_a_change(open_world: OpenWorld) -> None:
    world = open_world(sliding=True)
    put_bucket(world)
    world.create(key("a"), ttl_s=100)
    at = position(world)
    world.now += 5000
    world.touch(key("a"))
    world.settle()
    assert world.find(key("a")).touched_at == world.now
    assert names(changed(world, at)) == []


def test_an_expired_stream_is_listed_as_deleted(bucketed: World) -> None:
    world = bucketed
    world.create(key("brief"), ttl_s=1)
    at = position(world)
    world.now += 1000
    world.sweep()
    assert names(changed(world, at)) == ["brief-"]


def test_pages_go_on_where_the_last_one_ended(bucketed: World) -> None:
    """A change meanwhile is in a later page, and nothing is left out."""
    world = bucketed
    at = position(world)
    for number in range(10):
        world.create(key(f"s{number}"))
    page = changed(world, at, most=4)
    assert (names(page), page.has_more) == (["s0", "s1", "s2", "s3"], True)
    world.append(key("s1"))
    world.delete(key("s5"))
    page = changed(world, page.position, most=4)
    assert (names(page), page.has_more) == (["s4", "s6", "s7", "s8"], True)
    page = changed(world, page.position, most=4)
    assert (names(page), page.has_more) == (["s9", "s1", "s5-"], False)
    assert changed(world, page.position)[:2] == ([], False)


def test_changes_are_not_listed_before_they_are_durable(
    bucketed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the change, and not a state with it: written, but its fsync is not done."""
    world = bucketed
    commit = world.engine.commit
    settle = commit._settle
    held: list[CommitBatch] = []
    at = position(world)
    world.append(key("b"))
    between = world.find(key("b"))
    monkeypatch.setattr(commit, "_settle", held.append)
    for name in ("a", "b"):
        world.submit(key(name), Append(b"x", "text/plain"))
    world.until(lambda: bool(held))
    assert changed(world, at).streams == [(b"b", between)]
    monkeypatch.undo()

    async def go_on() -> None:
        settle(held[0])

    world.run(go_on())
    world.settle()
    page = changed(world, at)
    assert names(page) == ["a", "b"]
    assert page.streams == [(b"a", world.find(key("a"))), (b"b", world.find(key("b")))]


def test_a_restart_forgets_positions(bucketed: World) -> None:
    world = bucketed
    at = position(world)
    if world.kind == "memory":
        pytest.skip("a memory store does not survive it")
    world.reopen()
    with pytest.raises(PositionGone):
        changed(world, at)


def test_a_bucket_that_does_not_exist(world: World) -> None:
    with pytest.raises(BucketNotFound):
        changed(world, "0" * 16 + "-0")
