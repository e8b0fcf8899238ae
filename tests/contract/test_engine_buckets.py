"""Buckets over every store: responses, counts and listings; cached, evicted and reopened (X§1)."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from msgspec.structs import replace

from tailrace.engine import buckets as engine_buckets
from tailrace.engine import listing as engine_listing
from tailrace.engine.base import Store
from tailrace.engine.engine import Outcome
from tailrace.engine.listing import BucketPage, Page
from tailrace.protocol.errors import BucketNotFound, StreamNotFound
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import Append, Create, Delete, Publish, SnapshotInfo
from tests.contract.conftest import OpenWorld
from tests.contract.harness import START_MS, World, result
from tests.engine.proxy import StoreProxy
from tests.support.tiers import slow_but

BUCKET = b"bkt1"
OTHER = b"bkt2"
TEXT = "text/plain"

Forget = Callable[[World], None]


def key(stream: bytes, bucket: bytes = BUCKET) -> bytes:
    return bucket + b"\0" + stream


def new(world: World, ttl_s: int | None = None) -> Create:
    return Create(id=world.engine.new_id(), content_type=TEXT, ttl_s=ttl_s)


def put(world: World, bucket: bytes = BUCKET) -> str:
    """Create a bucket; returns the result."""
    replies: list[Outcome] = []
    submit_put(world, replies, bucket)
    world.until(lambda: bool(replies))
    return result(replies[0])


def drop(world: World, bucket: bytes = BUCKET) -> str:
    """Delete a bucket; returns the result."""
    replies: list[Outcome] = []
    submit_drop(world, replies, bucket)
    world.until(lambda: bool(replies))
    return result(replies[0])


def submit_put(world: World, replies: list[Outcome], bucket: bytes = BUCKET) -> None:
    async def work() -> None:
        world.engine.buckets.create(bucket, replies.append)

    world.run(work())


def submit_drop(world: World, replies: list[Outcome], bucket: bytes = BUCKET) -> None:
    async def work() -> None:
        world.engine.buckets.delete(bucket, replies.append)

    world.run(work())


def count(world: World, bucket: bytes = BUCKET) -> int:
    return world.engine.buckets.find(bucket).streams


def page(
    world: World,
    prefix: bytes = b"",
    after: bytes = b"",
    most: int = 1000,
    bucket: bytes = BUCKET,
) -> Page:
    return world.run(world.engine.listing.page(bucket, prefix, after, most))


def all_buckets(world: World, prefix: bytes, after: bytes, most: int) -> BucketPage:
    return world.run(world.engine.listing.all([(prefix, True)], after, most))


def ids(found: Page) -> list[bytes]:
    return [listed.stream_id for listed in found.streams]


def forget_all(world: World) -> None:
    """Neither streams nor buckets are in memory afterwards."""
    world.evict()
    world.engine.buckets._cache.evict(0)


@pytest.fixture(params=slow_but(["hot", "reopened"], ["hot", "forgotten", "reopened"]))
def forget(request: pytest.FixtureRequest) -> Forget:
    """What happens between a write and the look at it."""
    if request.param == "hot":
        return World.settle
    return forget_all if request.param == "forgotten" else World.reopen


class TestBuckets:
    def test_a_bucket_is_there_and_knows_when_it_came_to_be(
        self, world: World, forget: Forget
    ) -> None:
        assert put(world) == "created"
        world.now += 5
        forget(world)
        state = world.engine.buckets.find(BUCKET)
        assert (state.created_at, state.streams) == (START_MS, 0)
        assert world.engine.buckets.exists(BUCKET)

    def test_one_that_exists_is_not_created_again(self, world: World, forget: Forget) -> None:
        put(world)
        world.create(key(b"s"))
        world.now += 5
        forget(world)
        assert put(world) == "bucket-exists"
        state = world.engine.buckets.find(BUCKET)
        assert (state.created_at, state.streams) == (START_MS, 1)

    def test_one_that_does_not_exist(self, world: World, forget: Forget) -> None:
        put(world, OTHER)
        forget(world)
        assert drop(world) == "bucket-not-found"
        assert not world.engine.buckets.exists(BUCKET)
        with pytest.raises(BucketNotFound):
            world.engine.buckets.find(BUCKET)
        with pytest.raises(BucketNotFound):
            page(world)

    def test_a_bucket_must_be_empty_before_deletion(self, world: World, forget: Forget) -> None:
        put(world)
        world.create(key(b"a"))
        world.create(key(b"b"))
        for left in (b"a", b"b"):
            forget(world)
            assert drop(world) == "bucket-not-empty"
            world.delete(key(left))
        forget(world)
        assert drop(world) == "deleted"
        forget(world)
        assert drop(world) == "bucket-not-found"

    def test_created_again_it_is_empty(self, world: World, forget: Forget) -> None:
        put(world)
        world.create(key(b"s"), body=b"old")
        world.delete(key(b"s"))
        assert drop(world) == "deleted"
        world.now += 7
        forget(world)
        assert put(world) == "created"
        forget(world)
        assert world.engine.buckets.find(BUCKET).created_at == START_MS + 7
        assert (count(world), ids(page(world))) == (0, [])
        with pytest.raises(StreamNotFound):
            world.find(key(b"s"))

    def test_buckets_and_the_base_surface_do_not_meet(self, world: World, forget: Forget) -> None:
        """The same ids in two buckets, and names that look like them without a bucket."""
        put(world)
        put(world, OTHER)
        world.create(key(b"s"), body=b"one")
        world.create(key(b"s", OTHER), body=b"two")
        world.create(b"\0" + BUCKET + b"/s", body=b"none")
        world.create(b"\0s")
        forget(world)
        assert [count(world), count(world, OTHER)] == [1, 1]
        assert ids(page(world)) == ids(page(world, bucket=OTHER)) == [b"s"]
        assert world.read(key(b"s"))[0] == b"one"
        world.delete(key(b"s"))
        forget(world)
        assert [count(world), count(world, OTHER)] == [0, 1]
        assert world.read(key(b"s", OTHER))[0] == b"two"
        assert world.read(b"\0" + BUCKET + b"/s")[0] == b"none"


class TestStreamsInBuckets:
    def test_without_its_bucket_nothing_can_be_done_with_a_stream(
        self, world: World, forget: Forget
    ) -> None:
        """X§1.6: the bucket is missing, and no command makes it."""
        put(world, OTHER)
        forget(world)
        snapshot = SnapshotInfo(START, 1, 1, "a/b", b"", inline=True)
        for command in (
            new(world),
            new(world, ttl_s=0),
            Append(b"x", TEXT),
            Append(b"", None, True),
            Delete(),
            Publish(1, snapshot, b"x"),
        ):
            assert result(world.do(key(b"s"), command)) == "bucket-not-found"
        with pytest.raises(BucketNotFound):
            world.engine.find(key(b"s"))
        forget(world)
        assert not world.engine.buckets.exists(BUCKET)
        assert world.store.load(key(b"s")) is None

    def test_in_its_bucket_only_the_stream_is_missing(self, world: World, forget: Forget) -> None:
        put(world)
        forget(world)
        for command in (Append(b"x", TEXT), Delete()):
            assert result(world.do(key(b"s"), command)) == "stream-not-found"
        with pytest.raises(StreamNotFound):
            world.engine.find(key(b"s"))

    def test_the_count_follows(self, world: World, forget: Forget) -> None:
        """Only what comes to be or goes changes it: not a retry, a conflict, an append, a close."""
        put(world)
        world.create(key(b"a"))
        world.create(key(b"b"), closed=True)
        forget(world)
        assert count(world) == 2
        assert result(world.do(key(b"a"), new(world))) == "existed"
        assert result(world.do(key(b"a"), new(world, ttl_s=5))) == "stream-exists"
        world.append(key(b"a"))
        world.append(key(b"a"), b"", closes=True)
        forget(world)
        assert count(world) == 2
        world.delete(key(b"a"))
        assert result(world.do(key(b"a"), Delete())) == "stream-not-found"
        forget(world)
        assert count(world) == 1
        world.create(key(b"a"))
        forget(world)
        assert count(world) == 2

    def test_what_comes_together_is_decided_one_after_the_other(self, world: World) -> None:
        """Rule 1 of `protocol.bucket`, in one turn of the loop: nothing of it is on disk yet."""
        replies: list[Outcome] = []
        buckets = world.engine.buckets

        async def work() -> None:
            submit, reply = world.engine.submit, replies.append
            submit(key(b"s"), new(world), reply)
            buckets.create(BUCKET, reply)
            buckets.create(BUCKET, reply)
            submit(key(b"s"), new(world), reply)
            buckets.delete(BUCKET, reply)
            submit(key(b"s"), Delete(), reply)
            buckets.delete(BUCKET, reply)
            submit(key(b"s"), new(world), reply)
            buckets.delete(BUCKET, reply)
            buckets.create(BUCKET, reply)
            submit(key(b"t"), new(world), reply)

        world.run(work())
        world.until(lambda: len(replies) == 11)
        world.settle()
        # The first is refused at once, before anything is pending.
        assert [result(reply) for reply in replies] == [
            "bucket-not-found", "created", "bucket-exists", "created", "bucket-not-empty",
            "deleted", "deleted", "bucket-not-found", "bucket-not-found", "created", "created",
        ]  # fmt: skip
        world.reopen()
        assert (count(world), ids(page(world))) == (1, [b"t"])


class TestExpiry:
    """A stream whose time is over is gone, whether or not it has been cleared away."""

    def test_it_is_neither_counted_nor_listed(self, world: World, forget: Forget) -> None:
        put(world)
        world.create(key(b"a"))
        world.create(key(b"b"), ttl_s=1)
        world.create(key(b"c"), expires_at=START_MS + 2000)
        forget(world)
        for wait, left in ((999, b"abc"), (1, b"ac"), (999, b"ac"), (1, b"a")):
            world.now += wait
            assert ids(page(world)) == [bytes([name]) for name in left]
            assert count(world) == len(left)
        forget(world)
        world.sweep()
        assert (count(world), ids(page(world))) == (1, [b"a"])

    def test_the_count_is_right_after_every_kind_of_deletion(
        self, world: World, forget: Forget
    ) -> None:
        """The sweeper, a command on the stream, one on its bucket: it is taken off once."""
        put(world)
        for name in (b"a", b"b", b"c"):
            world.create(key(name), ttl_s=1)
        world.create(key(b"d"))
        world.now += 1000
        assert result(world.do(key(b"a"), Append(b"x", TEXT))) == "stream-not-found"
        assert count(world) == 1
        assert drop(world) == "bucket-not-empty"
        forget(world)
        assert count(world) == 1
        world.create(key(b"c"), ttl_s=1)
        world.sweep()
        assert (count(world), ids(page(world))) == (2, [b"c", b"d"])
        world.now += 1000
        world.sweep()
        forget(world)
        assert (count(world), ids(page(world))) == (1, [b"d"])

    def test_a_bucket_whose_streams_have_all_expired_can_be_deleted(
        self, world: World, forget: Forget
    ) -> None:
        """Before the sweeper comes; and what that finds later concerns no new stream."""
        put(world)
        for at in range(40):
            world.create(key(b"%d" % at), ttl_s=1, body=b"old")
        forget(world)
        assert drop(world) == "bucket-not-empty"
        world.now += 1000
        assert drop(world) == "deleted"
        assert put(world) == "created"
        world.create(key(b"7"), body=b"new")
        world.sweep()
        forget(world)
        assert (count(world), ids(page(world))) == (1, [b"7"])
        assert world.read(key(b"7"))[0] == b"new"

    @pytest.mark.parametrize("living", [b"", b"00", b"20", b"39"])
    def test_one_living_stream_among_them_keeps_the_bucket(
        self, world: World, living: bytes
    ) -> None:
        put(world)
        names = [b"%02d" % at for at in range(40)]
        for name in names:
            world.create(key(name), ttl_s=None if name == living else 1)
        world.now += 1000
        assert drop(world) == ("bucket-not-empty" if living else "deleted")
        if living:
            assert (count(world), ids(page(world))) == (1, [living])
            world.sweep()
            assert (count(world), ids(page(world))) == (1, [living])
            world.delete(key(living))
            assert drop(world) == "deleted"

    def test_one_request_clears_away_so_much_and_the_next_goes_on(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`EXPIRED_CHECKED_MAX` bounds one request; repeating it gets there without the sweeper."""
        monkeypatch.setattr(engine_buckets, "EXPIRED_CHECKED_MAX", 16)
        put(world)
        for at in range(40):
            world.create(key(b"%d" % at), ttl_s=1)
        world.now += 1000
        responses = [drop(world) for _ in range(3)]
        assert responses == ["bucket-not-empty", "bucket-not-empty", "deleted"]

    def test_a_ttl_that_slid_is_not_over(self, open_world: OpenWorld) -> None:
        """The index has the old moment: the stream is asked, not the index."""
        world = open_world(sliding=True)
        put(world)
        world.create(key(b"s"), ttl_s=2)
        world.now += 1500
        world.touch(key(b"s"))
        world.now += 1500
        assert (count(world), ids(page(world))) == (1, [b"s"])
        assert drop(world) == "bucket-not-empty"
        # To list it or to count it is no use of it.
        world.now += 500
        assert (count(world), ids(page(world))) == (0, [])
        assert drop(world) == "deleted"

    @pytest.mark.parametrize("end", ["append", "delete"])
    def test_one_that_has_just_gone_does_not_hide_one_that_has_expired(
        self, world: World, end: str
    ) -> None:
        """
        Goal: an empty bucket can be deleted (X§1.5), whatever is on its way to the disk.

        Method: of two streams whose time is over one meets a command, or of two one is deleted
        and the time of the other is over; in the same turn the bucket is deleted.
        """
        put(world)
        world.create(key(b"a"), ttl_s=1 if end == "append" else None)
        world.create(key(b"b"), ttl_s=1)
        world.settle()
        world.now += 1000
        replies: list[Outcome] = []

        async def work() -> None:
            command = Delete() if end == "delete" else Append(b"x", TEXT)
            world.engine.submit(key(b"a"), command, replies.append)
            world.engine.buckets.delete(BUCKET, replies.append)

        world.run(work())
        world.until(lambda: len(replies) == 2)
        first = "deleted" if end == "delete" else "stream-not-found"
        assert [result(reply) for reply in replies] == [first, "deleted"]
        assert not world.engine.buckets.exists(BUCKET)


class TestListing:
    def test_each_stream_with_its_state(self, world: World, forget: Forget) -> None:
        put(world)
        first = world.create(key(b"a"), body=b"abc")
        world.now += 3
        second = world.create(key(b"b"), content_type="application/json", closed=True)
        first = world.append(key(b"a"), b"d")
        forget(world)
        found = page(world)
        assert not found.has_more
        assert [listed.state for listed in found.streams] == [first, second]

    def test_pages_give_each_stream_once(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For every size of a step and of a page; expired streams are not listed."""
        put(world)
        names = [b"%02d" % at for at in range(18)]
        for at, name in enumerate(names):
            world.create(key(name), ttl_s=None if at % 3 == 0 else 1)
        world.now += 1000
        expected = names[::3]
        for step, most in product((1, 2, 5, 128), (1, 2, 3, 4, 5, 6, 7, 20)):
            monkeypatch.setattr(engine_listing, "NAMES_STEP", step)
            found: list[bytes] = []
            while True:
                got = page(world, after=found[-1] if found else b"", most=most)
                found += ids(got)
                assert got.has_more == (len(found) < len(expected))
                if not got.has_more:
                    break
                assert len(got.streams) == most
            assert found == expected

    def test_what_is_there_all_the_time_is_listed_once(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A listing of several steps is no snapshot, but what comes and goes disturbs no other."""
        monkeypatch.setattr(engine_listing, "NAMES_STEP", 2)
        put(world)
        kept = [b"%02d" % at for at in range(20)]
        for name in kept:
            world.create(key(name))
            world.create(key(name + b"-leaves"))

        async def work() -> Page:
            listing = asyncio.create_task(world.engine.listing.page(BUCKET, b"", b"", 1000))
            for name in reversed(kept):
                world.engine.submit(key(name + b"-leaves"), Delete(), lambda _: None)
                world.engine.submit(key(name + b"-comes"), new(world), lambda _: None)
                await asyncio.sleep(0)
            return await listing

        found = ids(world.run(work()))
        assert found == sorted(found)
        assert [name for name in found if b"-" not in name] == kept
        world.settle()
        expected = sorted([*kept, *(name + b"-comes" for name in kept)])
        assert ids(page(world)) == expected
        assert count(world) == len(expected)

    def test_a_listing_does_not_cache_streams(self, open_world: OpenWorld) -> None:
        """To look through a large bucket must not push what is in use out of memory."""
        world = open_world()
        put(world)
        for at in range(20):
            world.create(key(b"%02d" % at))
        forget_all(world)
        before = len(world.engine.stream_cache)
        assert len(page(world).streams) == 20
        assert len(world.engine.stream_cache) == before == 0


class Turnstile(StoreProxy):
    """A disk that, once stopped, lets one fsync through at a time."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.stopped = False
        self.passes = threading.Semaphore(0)

    def sync(self) -> None:
        if self.stopped and not self.passes.acquire(timeout=20):
            raise AssertionError("the test never let it pass")
        super().sync()

    def go_on(self) -> None:
        self.stopped = False
        self.passes.release(100)


class Held(NamedTuple):
    """A world, and the disk under it."""

    world: World
    disk: Turnstile


@pytest.fixture
def held(open_world: OpenWorld) -> Iterator[Held]:
    """An engine with a bucket and one stream in it, on a disk that a test can stop."""
    disks: list[Turnstile] = []

    def wrap(store: Store) -> Store:
        disks.append(Turnstile(store))
        return disks[-1]

    world = open_world(wrap=wrap)
    # The sweeper comes only when a test calls it.
    world.engine._sweeper._timer.cancel()
    world.slow_disk()
    put(world)
    world.create(key(b"old"), body=b"x")
    world.settle()
    yield Held(world, disks[0])
    disks[0].go_on()


class TestDurability:
    """No response or listing has what a crash could undo."""

    def test_a_bucket_that_is_not_durable_is_not_there_for_readers(self, held: Held) -> None:
        """Commands see it: a stream is created in it, and becomes visible together with it."""
        world, disk = held
        disk.stopped = True
        replies: list[Outcome] = []
        submit_put(world, replies, OTHER)
        world.submit(key(b"s", OTHER), new(world), replies)
        submit_put(world, replies, OTHER)
        world.turn()
        assert replies == []
        assert not world.engine.buckets.exists(OTHER)
        with pytest.raises(BucketNotFound):
            world.engine.find(key(b"s", OTHER))
        disk.go_on()
        world.until(lambda: len(replies) == 3)
        assert [result(reply) for reply in replies] == ["created", "created", "bucket-exists"]
        assert count(world, OTHER) == 1

    def test_a_bucket_whose_deletion_is_not_durable_still_exists(self, held: Held) -> None:
        world, disk = held
        world.delete(key(b"old"))
        disk.stopped = True
        replies: list[Outcome] = []
        submit_drop(world, replies)
        world.submit(key(b"s"), new(world), replies)
        submit_drop(world, replies)
        world.turn()
        assert replies == []
        assert count(world) == 0
        disk.go_on()
        world.until(lambda: len(replies) == 3)
        assert [result(reply) for reply in replies] == ["deleted"] + ["bucket-not-found"] * 2
        with pytest.raises(BucketNotFound):
            count(world)

    def test_streams_that_are_not_durable_are_not_counted(self, held: Held) -> None:
        world, disk = held
        disk.stopped = True
        world.submit(key(b"new"), new(world))
        world.turn()
        assert count(world) == 1
        world.submit(key(b"old"), Delete())
        world.turn()
        assert count(world) == 1
        disk.go_on()
        world.settle()
        assert (count(world), ids(page(world))) == (1, [b"new"])

    @pytest.mark.parametrize("ahead", [False, True], ids=["one batch", "two batches"])
    @pytest.mark.parametrize("what", ["create", "delete"])
    def test_a_listing_has_nothing_that_a_crash_could_undo(
        self, held: Held, what: str, ahead: bool
    ) -> None:
        """
        Goal: a listing is of what is durable, also where batches follow each other closely.

        Method: a change that is in the store, while its fsync hangs; asked for then, or already
        while the batch before it was on its way. The listing may wait, but not tell of it.
        """
        world, disk = held
        disk.stopped = True
        if ahead:
            world.submit(b"\0other", new(world))
            world.until(lambda: world.engine.commit.syncing is not None)
        writes = disk.writes
        if what == "create":
            world.submit(key(b"new"), new(world))
        else:
            world.submit(key(b"old"), Delete())
        if ahead:
            listing = start_page(world)
            disk.passes.release()
        world.until(lambda: disk.writes == writes + 1)
        if not ahead:
            listing = start_page(world)
        world.turn()
        if listing.done():
            assert ids(listing.result()) == [b"old"]
        disk.go_on()
        world.until(listing.done)
        world.settle()
        assert ids(page(world)) == ([b"new", b"old"] if what == "create" else [])

    @pytest.mark.parametrize("leaving", ["0123456789", "02468", "89", "01", "9", "0"])
    def test_streams_whose_deletion_is_not_durable_are_listed(
        self, held: Held, monkeypatch: pytest.MonkeyPatch, leaving: str
    ) -> None:
        """For every size of a step and of a page."""
        world, disk = held
        names = [b"%d" % at for at in range(10)]
        for name in names:
            world.create(key(name))
        world.settle()
        disk.stopped = True
        for digit in leaving:
            world.submit(key(digit.encode()), Delete())
        world.until(lambda: world.engine.commit.syncing is not None)
        listed = [*names, b"old"]
        pages = product((1, 2, 3, 5, 128), (1, 2, 3, 9, 10, 11, 12), (0, 1, 5, 10))
        for step, most, start in pages:
            monkeypatch.setattr(engine_listing, "NAMES_STEP", step)
            after = listed[start - 1] if start else b""
            got = page(world, after=after, most=most)
            assert ids(got) == listed[start : start + most]
            assert got.has_more == (start + most < len(listed))

    @pytest.mark.parametrize("leaving", ["0123", "02", "3", "0"])
    def test_buckets_are_listed_as_they_are_on_disk(
        self, held: Held, monkeypatch: pytest.MonkeyPatch, leaving: str
    ) -> None:
        """A created one is not listed before it is durable, a deleted one until then."""
        world, disk = held
        listed = [b"all%d" % at for at in range(4)]
        for name in listed:
            put(world, name)
        world.settle()
        disk.stopped = True
        replies: list[Outcome] = []
        submit_put(world, replies, b"all1-")
        for digit in leaving:
            submit_drop(world, replies, b"all" + digit.encode())
        world.until(lambda: world.engine.commit.syncing is not None)
        for step, most, start in product((1, 2, 3, 128), (1, 2, 3, 4, 5), (0, 1, 3)):
            monkeypatch.setattr(engine_listing, "NAMES_STEP", step)
            after = listed[start - 1] if start else b""
            got = all_buckets(world, b"all", after, most)
            assert [name for name, _ in got.buckets] == listed[start : start + most]
            assert got.has_more == (start + most < len(listed))
        disk.go_on()
        world.settle()
        left = [name for name in listed if chr(name[-1]) not in leaving]
        got = all_buckets(world, b"all", b"", 99)
        assert [name for name, _ in got.buckets] == sorted([*left, b"all1-"])

    def test_a_listing_of_some_buckets_reads_no_others(
        self, held: Held, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So that the time taken does not show how many others there are."""
        world, _ = held
        # The background deletion of expired streams reads any bucket.
        world.engine._sweeper.stop()
        made = [b"aaa-%d" % at for at in range(4)] + [b"aab-%d" % at for at in range(4)]
        for name in (*made, b"zzzz"):
            put(world, name)
            world.create(key(b"brief", name), ttl_s=1)
        world.settle()
        world.now += 1000
        forget_all(world)
        parts = [(b"aaa-1", False), (b"aaa-none", False), (b"aab-", True), (b"zzzz", False)]
        listed = [b"aaa-1", *made[4:], b"zzzz"]
        looked: set[bytes] = set()

        def watched(load: Callable[[bytes], object]) -> Callable[[bytes], object]:
            def look(at: bytes) -> object:
                looked.add(at)
                return load(at)

            return look

        store = world.engine.store
        monkeypatch.setattr(store, "bucket", watched(store.bucket))
        monkeypatch.setattr(store, "load", watched(store.load))
        for step, most, start in product((1, 2, 128), range(1, 8), range(len(listed))):
            monkeypatch.setattr(engine_listing, "NAMES_STEP", step)
            after = listed[start - 1] if start else b""
            got = world.run(world.engine.listing.all(parts, after, most))
            assert [name for name, _ in got.buckets] == listed[start : start + most]
            assert got.has_more == (start + most < len(listed))
            assert all(state.streams == 0 for _, state in got.buckets)
        assert {at.partition(b"\0")[0] for at in looked} == {*listed, b"aaa-none"}

    def test_a_stream_that_expires_before_it_is_durable_is_not_taken_off(self, held: Held) -> None:
        """The count is never below zero: what was not counted yet cannot have expired from it."""
        world, disk = held
        disk.stopped = True
        world.submit(key(b"brief"), new(world, ttl_s=0))
        world.until(lambda: world.engine.commit.syncing is not None)
        assert count(world) == 1
        disk.go_on()
        world.settle()
        assert count(world) == 1
        world.sweep()
        assert count(world) == 1

    def test_a_stream_that_has_expired_does_not_come_back_while_it_is_cleared_away(
        self, held: Held
    ) -> None:
        """Before the sweeper, while its batch is on its way, and after it: it is gone."""
        world, disk = held
        world.create(key(b"brief"), ttl_s=1)
        world.settle()
        world.now += 1000
        assert count(world) == 1
        disk.stopped = True
        world.engine._sweeper._sweep()
        world.engine._sweeper._timer.cancel()
        assert count(world) == 1
        world.until(lambda: world.engine.commit.syncing is not None)
        assert count(world) == 1
        disk.go_on()
        world.settle()
        assert count(world) == 1

    def test_after_a_failure_nothing_is_decided_any_more(self, held: Held) -> None:
        world, disk = held
        disk.write_error = OSError("No such device")
        replies: list[Outcome] = []
        submit_put(world, replies, OTHER)
        world.until(lambda: bool(replies))
        submit_put(world, replies, b"bkt3")
        submit_drop(world, replies)
        assert [result(reply) for reply in replies] == ["storage-failed"] * 3
        assert not world.engine.buckets.exists(OTHER)


def start_page(world: World) -> "asyncio.Task[Page]":
    """Ask for a listing without waiting for it."""

    async def start() -> "asyncio.Task[Page]":
        task = asyncio.create_task(world.engine.listing.page(BUCKET, b"", b"", 1000))
        await asyncio.sleep(0)
        return task

    return world.run(start())


# -- any history ---------------------------------------------------------------------------------

# Of one to four bytes, prefixes of each other, next to each other at the ends of ranges.
NAMES = [
    "a",
    "ab",
    "abc",
    "a%",
    "a_",
    "a*",
    "b",
    "é",
    "éa",
    "€",
    "\uffff",
    "😀",
    "😀a",
    "\U0010ffff",
]
STREAMS = st.sampled_from([name.encode() for name in NAMES])
CURSORS = st.one_of(
    st.just(b""), STREAMS, st.text(max_size=2).map(lambda text: text.encode("utf-8", "replace"))
)
BUCKETS = st.sampled_from([BUCKET, OTHER])


class BucketStep(NamedTuple):
    bucket: bytes
    creates: bool


class StreamStep(NamedTuple):
    bucket: bytes
    stream: bytes
    what: str
    ttl_s: int | None
    size: int
    at: int
    """At which of the retained boundaries a snapshot is published."""


STEPS = st.one_of(
    st.builds(BucketStep, BUCKETS, st.booleans()),
    st.builds(
        StreamStep,
        BUCKETS,
        # Often the same ones, so that much happens to some of them.
        st.one_of(st.sampled_from([b"a", b"b"]), STREAMS),
        st.sampled_from(["create", "create", "create", "append", "append", "publish", "delete"]),
        st.sampled_from([None, None, 1, 2]),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
)


class StreamModel:
    """One stream: what it ends at, its TTL, the boundaries that it retains, and its snapshot."""

    def __init__(self, deadline: int | None, ttl_s: int | None, size: int) -> None:
        self.deadline = deadline
        self.ttl_s = ttl_s
        self.boundaries = [START]
        self.snapshot: tuple[Offset, int] | None = None
        if size:
            self.append(size)

    def append(self, size: int) -> None:
        tail = self.boundaries[-1]
        self.boundaries.append(Offset(tail.message + 1, tail.byte + size))

    def publish(self, at: int, size: int) -> str:
        offset = self.boundary(at)
        if self.snapshot is not None and self.snapshot[0] == offset:
            return "existed" if self.snapshot[1] == size else "snapshot-conflict"
        self.snapshot = (offset, size)
        self.boundaries = [end for end in self.boundaries if end >= offset]
        return "published"

    def boundary(self, at: int) -> Offset:
        return self.boundaries[at % len(self.boundaries)]

    @property
    def size(self) -> int:
        """The naive sum."""
        retained = self.boundaries[-1].byte - self.boundaries[0].byte
        return retained + (0 if self.snapshot is None else self.snapshot[1])


class Model:
    """Buckets as dictionaries of streams."""

    def __init__(self) -> None:
        self.buckets: dict[bytes, dict[bytes, StreamModel]] = {}

    def expire(self, now: int) -> None:
        for streams in self.buckets.values():
            for name, stream in list(streams.items()):
                if stream.deadline is not None and stream.deadline <= now:
                    del streams[name]

    def bucket(self, step: BucketStep) -> str:
        streams = self.buckets.get(step.bucket)
        if step.creates:
            self.buckets.setdefault(step.bucket, {})
            return "created" if streams is None else "bucket-exists"
        if streams is None:
            return "bucket-not-found"
        if streams:
            return "bucket-not-empty"
        del self.buckets[step.bucket]
        return "deleted"

    def stream(self, step: StreamStep, now: int) -> str:
        streams = self.buckets.get(step.bucket)
        if streams is None:
            return "bucket-not-found"
        known = streams.get(step.stream)
        if step.what == "create":
            if known is not None:
                return "existed" if known.ttl_s == step.ttl_s else "stream-exists"
            deadline = None if step.ttl_s is None else now + 1000 * step.ttl_s
            streams[step.stream] = StreamModel(deadline, step.ttl_s, step.size)
            return "created"
        if known is None:
            return "stream-not-found"
        if step.what == "append":
            known.append(step.size + 1)
            return "appended"
        if step.what == "publish":
            return known.publish(step.at, step.size)
        del streams[step.stream]
        return "deleted"

    def page(self, bucket: bytes, prefix: bytes, after: bytes, most: int) -> list[bytes]:
        """One more than asked for, if there is one more."""
        every = sorted(self.buckets[bucket])
        return [name for name in every if name.startswith(prefix) and name > after][: most + 1]


def _missing(response: str) -> bool:
    return response in ("bucket-not-found", "stream-not-found")


class BucketsAgainstModel(RuleBasedStateMachine):
    """Random commands that arrive together, listings in between, evictions and restarts."""

    kind = "memory"
    slow_disk = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="contract-"))
        self.patch = pytest.MonkeyPatch()
        # Smaller than most pages, so that most of them take several steps.
        self.patch.setattr(engine_listing, "NAMES_STEP", 3)
        self.world = World(self.kind, self.directory / "data", streams_cached_max=3)
        self.model = Model()
        self._slow()

    def _slow(self) -> None:
        if self.slow_disk:
            self.world.slow_disk()

    def teardown(self) -> None:
        try:
            self.check_all()
        finally:
            self.patch.undo()
            self.world.close()
            del self.world
            shutil.rmtree(self.directory)

    @rule(steps=st.lists(STEPS, min_size=1, max_size=10))
    def one_turn(self, steps: list[BucketStep | StreamStep]) -> None:
        replies: dict[int, Outcome] = {}
        expected: list[str] = []
        engine, now = self.world.engine, self.world.now
        self.model.expire(now)

        async def submit() -> None:
            for at, step in enumerate(steps):

                def reply(outcome: Outcome, at: int = at) -> None:
                    replies[at] = outcome

                if isinstance(step, BucketStep):
                    expected.append(self.model.bucket(step))
                    buckets = engine.buckets
                    (buckets.create if step.creates else buckets.delete)(step.bucket, reply)
                    continue
                command = self.command(step)
                expected.append(self.model.stream(step, now))
                engine.submit(key(step.stream, step.bucket), command, reply)

        self.world.run(submit())
        self.world.until(lambda: len(replies) == len(steps))
        responses = [result(replies[at]) for at in range(len(steps))]
        for at, step in enumerate(steps):
            if isinstance(step, StreamStep) and step.what != "create" and _missing(responses[at]):
                # A refusal may be from before the bucket was created or deleted.
                assert _missing(expected[at])
                expected[at] = responses[at]
        assert responses == expected

    def command(self, step: StreamStep) -> Create | Append | Delete | Publish:
        """What a step means to the engine, before the model has taken it."""
        if step.what == "create":
            return replace(new(self.world, step.ttl_s), body=b"c" * step.size)
        if step.what == "append":
            return Append(b"a" * (step.size + 1), TEXT)
        if step.what == "delete":
            return Delete()
        known = self.model.buckets.get(step.bucket, {}).get(step.stream)
        state = self.world.engine.stream(key(step.stream, step.bucket)).state
        content = b"s" * step.size
        snapshot = SnapshotInfo(
            START if known is None else known.boundary(step.at),
            self.world.engine.take_id(),
            step.size,
            TEXT,
            content,
            inline=True,
        )
        return Publish(0 if state is None else state.id, snapshot, content)

    @rule(bucket=BUCKETS, prefix=CURSORS, after=CURSORS, most=st.integers(1, 9))
    def list_page(self, bucket: bytes, prefix: bytes, after: bytes, most: int) -> None:
        self.model.expire(self.world.now)
        if bucket not in self.model.buckets:
            with pytest.raises(BucketNotFound):
                page(self.world, prefix, after, most, bucket)
            return
        expected = self.model.page(bucket, prefix, after, most)
        found = page(self.world, prefix, after, most, bucket)
        assert ids(found) == expected[:most]
        assert found.has_more == (len(expected) > most)

    @rule(milliseconds=st.sampled_from([1, 999, 1000, 2000]))
    def wait(self, milliseconds: int) -> None:
        self.world.settle()
        self.world.now += milliseconds

    @rule()
    def sweep(self) -> None:
        self.world.sweep()

    @rule()
    def forget(self) -> None:
        forget_all(self.world)

    @rule()
    def reopen(self) -> None:
        self.world.reopen()
        self._slow()
        self.check_all()

    def check_all(self) -> None:
        """Count, listing and the streams themselves agree with each other and with the model."""
        self.world.settle()
        self.model.expire(self.world.now)
        for bucket in (BUCKET, OTHER):
            streams = self.model.buckets.get(bucket)
            assert self.world.engine.buckets.exists(bucket) == (streams is not None)
            if streams is not None:
                assert count(self.world, bucket) == len(streams)
                size = sum(stream.size for stream in streams.values())
                assert self.world.engine.buckets.find(bucket).bytes == size
                assert ids(page(self.world, bucket=bucket)) == sorted(streams)
            for name in NAMES:
                known = streams is not None and name.encode() in streams
                assert (self.world.engine.peek(key(name.encode(), bucket)) is not None) == known


# On a disk it takes minutes to make a failure small, and what fails there mostly fails in memory.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


class Memory(BucketsAgainstModel):
    pass


class Rocks(BucketsAgainstModel):
    kind = "rocks"


class RocksSlow(BucketsAgainstModel):
    kind = "rocks"
    slow_disk = True


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("machine", "examples"), slow_but([(Memory, 80)], [(Memory, 80), (Rocks, 25), (RocksSlow, 15)])
)
def test_any_history_counts_and_lists_like_plain_dictionaries(
    machine: type[BucketsAgainstModel], examples: int
) -> None:
    """
    Goal: X§1 whatever happens in whatever order, and each page that of a plain sorted list; the
    bytes of a bucket are the sum over its streams, though they are never counted.

    Method: random commands in one turn, against a model that never forgets; listings with random
    prefixes, cursors and limits in between.
    """
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            phases=PHASES if machine is Memory else PHASES[:-1],
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
