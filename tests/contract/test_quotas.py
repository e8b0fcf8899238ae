"""
`Engine.quota` over every store: asked about what would be new, and about nothing else.

A retry of what is stored, a close, a deletion and whatever makes a bucket smaller pass even where
nothing more may come.
"""

from collections.abc import Callable

import pytest

from tailrace.engine.engine import Outcome
from tailrace.protocol.bucket import BucketState, Growth
from tailrace.protocol.errors import Refusal
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import Append, Create, Publish, SnapshotInfo, StreamState
from tests.contract.harness import START_MS, World, result

BUCKET = b"bkt1"
KEY = BUCKET + b"\0s"
TEXT = "text/plain"


class Full(Refusal):
    code = "full"


@pytest.fixture
def bucketed(world: World) -> World:
    replies: list[Outcome] = []

    async def work() -> None:
        world.engine.buckets.create(BUCKET, replies.append)

    world.run(work())
    world.until(lambda: bool(replies))
    return world


def limit(world: World, bytes_max: int, streams_max: int = 9) -> list[Growth]:
    """Limit the bucket from now on; returns what the engine asks about."""
    asked: list[Growth] = []

    def quota(bucket: bytes, state: BucketState, growth: Growth) -> None:
        assert bucket == BUCKET
        asked.append(growth)
        if state.bytes + growth.bytes > bytes_max or state.streams + growth.streams > streams_max:
            raise Full

    world.engine.quota = quota
    return asked


def size(world: World) -> tuple[int, int]:
    state = world.engine.buckets.find(BUCKET)
    return state.streams, state.bytes


def publish(world: World, state: StreamState, content: bytes) -> str:
    snapshot = SnapshotInfo(
        state.tail, world.engine.take_id(), len(content), TEXT, content, inline=True
    )
    return result(world.do(KEY, Publish(state.id, snapshot, content)))


def test_what_would_be_too_much_is_refused_and_changes_nothing(bucketed: World) -> None:
    world = bucketed
    world.create(KEY, body=b"12345")
    asked = limit(world, bytes_max=10)
    assert result(world.do(KEY, Append(b"123456", TEXT))) == "full"
    assert size(world) == (1, 5)
    assert world.read(KEY)[0] == b"12345"
    world.append(KEY, b"12345")
    assert result(world.do(KEY, Append(b"1", TEXT))) == "full"
    assert size(world) == (1, 10)
    assert asked == [Growth(0, 6, 1), Growth(0, 5, 1), Growth(0, 1, 1)]
    world.reopen()
    assert size(world) == (1, 10)


def test_streams_are_counted_as_they_are_created(bucketed: World) -> None:
    world = bucketed
    asked = limit(world, bytes_max=10, streams_max=1)
    world.create(KEY, body=b"123")
    create = Create(id=world.engine.new_id(), content_type=TEXT)
    assert result(world.do(BUCKET + b"\0t", create)) == "full"
    # The one that exists may be created again: nothing is new.
    assert result(world.do(KEY, create)) == "existed"
    assert asked == [Growth(1, 3, 1), Growth(1, 0, 0)]
    world.delete(KEY)
    world.create(KEY)


def test_commands_of_one_turn_are_counted_together(bucketed: World) -> None:
    """The bucket runs ahead of the disk: what is decided, but not stored yet, counts."""
    world = bucketed
    world.create(KEY)
    limit(world, bytes_max=10)
    replies: list[Outcome] = []

    async def work() -> None:
        for _ in range(5):
            world.engine.submit(KEY, Append(b"123", TEXT), replies.append)

    world.run(work())
    world.until(lambda: len(replies) == 5)
    assert sorted(map(result, replies)) == ["appended"] * 3 + ["full"] * 2
    assert size(world) == (1, 9)


def test_what_is_stored_already_is_acknowledged_again(bucketed: World) -> None:
    """A producer's retry, whatever the quota has become meanwhile."""
    world = bucketed
    world.create(KEY)
    claim = ProducerHeaders("p", 0, 0)
    world.append(KEY, b"1234", claim=claim)
    asked = limit(world, bytes_max=0)
    assert result(world.do(KEY, Append(b"1234", TEXT, producer=claim))) == "duplicate"
    assert result(world.do(KEY, Append(b"5", TEXT, producer=ProducerHeaders("p", 0, 1)))) == "full"
    # It was refused, so it is no gap: the same comes again when there is room.
    world.engine.quota = None
    assert (
        result(world.do(KEY, Append(b"5", TEXT, producer=ProducerHeaders("p", 0, 1)))) == "appended"
    )
    assert asked == [Growth(0, 1, 1)]


def test_closing_and_deleting_are_never_refused(bucketed: World) -> None:
    world = bucketed
    world.create(KEY, body=b"1234")
    asked = limit(world, bytes_max=0, streams_max=0)
    assert result(world.do(KEY, Append(b"5", TEXT, closes=True))) == "full"
    assert result(world.do(KEY, Append(b"", closes=True))) == "closed"
    assert asked == [Growth(0, 1, 1)]
    world.delete(KEY)
    assert size(world) == (0, 0)


@pytest.mark.parametrize(
    ("content", "outcome"),
    [(b"1234", "published"), (b"12345", "published"), (b"123456", "full")],
)
def test_a_snapshot_counts_by_what_it_changes_in_sum(
    bucketed: World, content: bytes, outcome: str
) -> None:
    """What it covers goes: in a bucket that is full, one of the same size still fits."""
    world = bucketed
    state = world.create(KEY, body=b"12345")
    limit(world, bytes_max=5)
    assert publish(world, state, content) == outcome
    assert size(world) == (1, len(content) if outcome == "published" else 5)


def test_a_snapshot_takes_the_place_of_the_one_before(bucketed: World) -> None:
    world = bucketed
    state = world.create(KEY, body=b"12345")
    assert publish(world, state, b"1234567") == "published"
    state = world.append(KEY, b"1")
    limit(world, bytes_max=8)
    assert publish(world, state, b"123456789") == "full"
    assert publish(world, state, b"12345678") == "published"
    assert size(world) == (1, 8)


@pytest.mark.parametrize("expires", [False, True])
def test_a_deleted_stream_releases_all_its_bytes(bucketed: World, expires: bool) -> None:
    """What it retains and its snapshot, but not once more what the snapshot covered."""
    world = bucketed
    state = world.create(KEY, body=b"12345", ttl_s=1 if expires else None)
    assert publish(world, state, b"123") == "published"
    world.append(KEY, b"12")
    other = BUCKET + b"\0t"
    world.create(other, body=b"1234")
    assert size(world) == (2, 9)
    if expires:
        world.now += 1000
        world.sweep()
    else:
        world.delete(KEY)
    assert world.engine.buckets.entry(BUCKET).durable == BucketState(START_MS, 1, 4)
    world.reopen()
    assert size(world) == (1, 4)


@pytest.mark.parametrize("forget", [World.settle, World.evict, World.reopen])
def test_expired_streams_make_room_for_a_quota(
    bucketed: World, forget: Callable[[World], None]
) -> None:
    """Also before the sweeper comes by, and in the very moment."""
    world = bucketed
    for name in (b"a", b"b", b"c"):
        world.create(BUCKET + b"\0" + name, body=b"12345", ttl_s=1)
    world.create(KEY, body=b"12345")
    forget(world)
    limit(world, bytes_max=20, streams_max=4)
    assert result(world.do(KEY, Append(b"1", TEXT))) == "full"
    world.now += 1000
    assert size(world) == (1, 5)
    assert result(world.do(KEY, Append(b"123456789012345", TEXT))) == "appended"
    assert result(world.do(KEY, Append(b"1", TEXT))) == "full"
    assert size(world) == (1, 20)
    world.sweep()
    assert size(world) == (1, 20)
    world.reopen()
    assert size(world) == (1, 20)


def test_the_base_surface_has_no_quota(bucketed: World) -> None:
    world = bucketed
    asked = limit(world, bytes_max=0, streams_max=0)
    world.create(b"\0s", body=b"12345")
    world.append(b"\0s", b"x")
    assert asked == []
