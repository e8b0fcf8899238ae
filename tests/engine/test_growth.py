"""Bytes of buckets and quotas at the edges: durability, quotas and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.engine.engine import Outcome
from tailrace.engine.errors import DiskFull, StorageDamaged
from tailrace.protocol.bucket import BucketState, Growth
from tailrace.protocol.errors import Refusal
from tailrace.protocol.state import Append, Delete
from tests.contract.harness import KINDS, World, result
from tests.engine.conftest import Held

TEXT = "text/plain"
BUCKET = b"bkt1"


class Full(Refusal):
    code = "full"


def add_bucket(world: World, key: bytes = BUCKET) -> None:
    replies: list[Outcome] = []

    async def work() -> None:
        world.engine.buckets.create(key, replies.append)

    world.run(work())
    world.until(lambda: bool(replies))


def limit(world: World, bytes_max: int) -> list[Growth]:
    asked: list[Growth] = []

    def quota(_bucket: bytes, state: BucketState, growth: Growth) -> None:
        asked.append(growth)
        if state.bytes + growth.bytes > bytes_max:
            raise Full

    world.engine.quota = quota
    return asked


def test_a_full_bucket_is_not_reported_before_it_is_durable(held: Held) -> None:
    """A crash would undo what filled it, and the refusal would have been for nothing."""
    world, disk = held
    add_bucket(world)
    world.create(BUCKET + b"\0a")
    world.create(BUCKET + b"\0b")
    limit(world, bytes_max=10)
    disk.gate.clear()
    filled: list[Outcome] = []
    refused: list[Outcome] = []
    world.submit(BUCKET + b"\0a", Append(b"0123456789", TEXT), filled)
    world.submit(BUCKET + b"\0b", Append(b"x", TEXT), refused)
    world.until(lambda: world.engine.commit.syncing is not None)
    world.submit(BUCKET + b"\0b", Append(b"y", TEXT), refused)
    for _ in range(5):
        world.turn()
    assert (filled, refused) == ([], [])
    disk.gate.set()
    world.until(lambda: len(refused) == 2)
    assert [result(outcome) for outcome in (*filled, *refused)] == ["appended", "full", "full"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_uses_up_no_quota(kind: str, tmp_path: Path) -> None:
    with World(kind, tmp_path / "data") as world:
        add_bucket(world)
        world.create(BUCKET + b"\0a")
        asked = limit(world, bytes_max=10)
        world.engine.measure_room = lambda: None  # type: ignore[method-assign]
        world.engine._room = 3
        outcome = world.do(BUCKET + b"\0a", Append(b"12345", TEXT))
        assert isinstance(outcome, DiskFull)
        assert asked == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_bucket_row_refuses_before_anything_changes(kind: str, tmp_path: Path) -> None:
    """Of a damaged store: the append is refused whole, and the stream is as it was."""
    with World(kind, tmp_path / "data") as world:
        add_bucket(world)
        key = BUCKET + b"\0a"
        before = world.create(key, body=b"one")
        world.engine.buckets.entry(BUCKET).state = None
        with pytest.raises(StorageDamaged):
            world.submit(key, Append(b"two", TEXT))
        assert world.engine.stream(key).state == before
        assert not world.engine.commit.open.changes


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_does_not_load_the_bucket(kind: str, tmp_path: Path) -> None:
    """Else one bucket that cannot be read would keep streams of others from being evicted."""
    with World(kind, tmp_path / "data", sliding=True) as world:
        add_bucket(world)
        key = BUCKET + b"\0a"
        world.create(key, ttl_s=100)
        world.now += 5000

        def lost(_key: bytes) -> None:
            raise StorageDamaged("nothing")

        world.engine.buckets.entry = lost  # type: ignore[method-assign, assignment]
        world.touch(key)
        world.settle()
        assert world.find(key).touched_at == world.now


@pytest.mark.parametrize("kind", KINDS)
def test_appends_are_counted_even_if_their_stream_is_deleted(kind: str, tmp_path: Path) -> None:
    """Deleted in the same batch, they were appended all the same; other batches have none."""
    with World(kind, tmp_path / "data") as world:
        world.create(b"s")
        meters = world.engine.commit.meters
        before = (
            meters.appended_messages,
            meters.appended_bytes,
            sum(meters.commit_records.counts),
        )
        replies: list[Outcome] = []

        async def work() -> None:
            world.engine.submit(b"s", Append(b"12345", TEXT), replies.append)
            world.engine.submit(b"s", Append(b"678", TEXT), replies.append)
            world.engine.submit(b"s", Delete(), replies.append)

        world.run(work())
        world.until(lambda: len(replies) == 3)
        after = (meters.appended_messages, meters.appended_bytes, sum(meters.commit_records.counts))
        assert [b - a for a, b in zip(before, after, strict=True)] == [2, 8, 1]
        commits = meters.commits
        world.create(b"t")
        assert meters.commits == commits + 1
        assert sum(meters.commit_records.counts) == after[2]
