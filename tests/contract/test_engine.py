"""The same responses from an engine over every store, hot, evicted and reopened."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tailrace.engine.engine import (
    CHECKPOINT_BYTES,
    CHECKPOINT_RECORDS,
    ID_BLOCK,
    TOUCH_MS,
    Outcome,
)
from tailrace.engine.read import read_slice
from tailrace.protocol.errors import (
    OffsetBeyondTail,
    OffsetGone,
    OffsetMisaligned,
    StreamNotFound,
)
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import Append, Create, Delete
from tests.contract.conftest import OpenWorld
from tests.contract.harness import START_MS, World, result
from tests.support.tiers import slow_but

JSON = "application/json"

Forget = Callable[[World], None]


@pytest.fixture(params=slow_but(["hot", "reopened"], ["hot", "evicted", "reopened"]))
def forget(request: pytest.FixtureRequest) -> Forget:
    """What happens between a write and the look at it."""
    if request.param == "hot":
        return World.settle
    return World.evict if request.param == "evicted" else World.reopen


class TestWrites:
    def test_a_stream_keeps_all_its_fields(self, world: World, forget: Forget) -> None:
        world.create(content_type="Text/Plain; x=1", ttl_s=60, body=b"first")
        world.now += 5
        state = world.append(claim=ProducerHeaders("p", 3, 0), seq="é")
        world.create(b"other", body=b"other")
        forget(world)
        assert world.find() == state
        assert state.producers.get("p") == (3, 0)
        assert world.read() == (b"firstx", Offset(2, 6))
        assert world.read(b"other") == (b"other", Offset(1, 5))

    @pytest.mark.parametrize("body", [b"", b"last"])
    def test_closure_and_the_closing_producer_survive(
        self, world: World, forget: Forget, body: bytes
    ) -> None:
        claim = ProducerHeaders("p", 0, 0)
        world.create(body=b"a")
        state = world.append(body=body, closes=True, claim=claim)
        forget(world)
        assert world.find() == state
        assert world.read() == (b"a" + body, state.tail)
        assert result(world.do(b"s", Append(b"z", "text/plain", True, claim))) == "duplicate"
        assert result(world.do(b"s", Append(b"z", "text/plain"))) == "stream-closed"
        assert result(world.do(b"s", Append(b"", None, True))) == "closed"
        assert world.find() == state

    @pytest.mark.parametrize("body", [b"", b"all"])
    def test_created_closed(self, world: World, forget: Forget, body: bytes) -> None:
        state = world.create(body=body, closed=True)
        forget(world)
        assert world.find() == state
        assert state.closed
        assert world.read() == (body, state.tail)

    def test_a_retry_is_known(self, world: World, forget: Forget) -> None:
        world.create()
        for seq in range(3):
            world.append(claim=ProducerHeaders("p", 1, seq), seq=str(seq))
        state = world.find()
        forget(world)
        retry = Append(b"x", "text/plain", False, ProducerHeaders("p", 1, 2), "2")
        assert result(world.do(b"s", retry)) == "duplicate"
        zombie = Append(b"x", "text/plain", False, ProducerHeaders("p", 0, 0))
        assert result(world.do(b"s", zombie)) == "producer-fenced"
        assert (
            result(world.do(b"s", Append(b"x", "text/plain", stream_seq="2"))) == "seq-regression"
        )
        assert world.find() == state

    def test_a_refusal_changes_nothing(self, world: World, forget: Forget) -> None:
        state = world.create(content_type=JSON, body=b"[1]")
        for command in (
            Append(b"{", JSON),
            Append(b"[]", JSON),
            Append(b"1", "text/plain"),
            Append(b"", JSON),
            Create(id=world.engine.new_id(), content_type="text/plain"),
        ):
            world.do(b"s", command)
        forget(world)
        assert world.find() == state
        assert world.read() == (b"1,", Offset(1, 2))

    def test_deleted_is_gone(self, world: World, forget: Forget) -> None:
        world.create(body=b"x")
        world.delete()
        forget(world)
        with pytest.raises(StreamNotFound):
            world.find()
        assert result(world.do(b"s", Delete())) == "stream-not-found"
        assert result(world.do(b"s", Append(b"x", "text/plain"))) == "stream-not-found"

    def test_created_again_is_another_stream(self, world: World, forget: Forget) -> None:
        old = world.create(body=b"old bytes")
        world.append(claim=ProducerHeaders("p", 9, 0), seq="z")
        world.delete()
        forget(world)
        new = world.create(content_type=JSON, body=b"[1,2]")
        assert new.id > old.id
        forget(world)
        world.sweep()
        assert world.find() == new
        assert world.read() == (b"1,2,", Offset(2, 4))


class TestReads:
    """Whole messages, at every boundary and with every limit."""

    SIZES = ((3,), (1, 2, 4), (5,), (2, 2), (70_000,), (1,))

    @pytest.fixture
    def positions(self, world: World, forget: Forget) -> list[Offset]:
        """A JSON stream of single messages and batches; every boundary of it."""
        world.create(b"before", content_type=JSON, body=b"[1,2,3]")
        world.create(content_type=JSON)
        world.create(b"after", content_type=JSON, body=b"[4,5,6]")
        positions, letter = [START], iter(range(48, 58))
        for sizes in self.SIZES:
            digits = [b"1" + b"%c" % next(letter) * (size - 1) for size in sizes]
            # A huge number is not JSON to everyone; a string is.
            items = [b'"' + text + b'"' for text in digits]
            world.append(body=b"[" + b",".join(items) + b"]", content_type=JSON)
            for item in items:
                last = positions[-1]
                positions.append(Offset(last.message + 1, last.byte + len(item) + 1))
        forget(world)
        return positions

    def test_from_every_boundary_to_the_tail(self, world: World, positions: list[Offset]) -> None:
        whole, tail = world.read()
        assert (len(whole), tail) == (positions[-1].byte, positions[-1])
        for position in positions:
            assert world.read(start=position) == (whole[position.byte :], tail)
            world.engine.locate(world.engine.find(b"s"), position)

    def test_every_limit_ends_at_a_boundary(self, world: World, positions: list[Offset]) -> None:
        """As much as fits, and at least one message, from every boundary."""
        whole, _ = world.read()
        sizes = {end.byte - start.byte for start in positions for end in positions if end > start}
        limits = sorted({0, 1, *sizes, *(size + 1 for size in sizes), *(s - 1 for s in sizes)})
        for start in positions[:-1]:
            for limit in limits:
                data, end = world.read(start=start, bytes_max=limit)
                fitting = [at for at in positions if start < at and at.byte - start.byte <= limit]
                expected = fitting[-1] if fitting else positions[positions.index(start) + 1]
                assert end == expected
                assert data == whole[start.byte : end.byte]

    def test_chunk_by_chunk_gives_the_whole(self, world: World, positions: list[Offset]) -> None:
        whole, tail = world.read()
        for limit in (1, 7, 64, 70_003, 1 << 20):
            at, got = START, b""
            while at != tail:
                data, after = world.read(start=at, bytes_max=limit)
                assert after > at
                got, at = got + data, after
            assert got == whole

    def test_every_other_offset_is_misaligned(self, world: World, positions: list[Offset]) -> None:
        stream = world.engine.find(b"s")
        tail = positions[-1]
        near = [at for known in positions for at in (known.byte - 1, known.byte, known.byte + 1)]
        for byte in sorted({at for at in near if 0 <= at <= tail.byte}):
            for message in range(tail.message + 1):
                offset = Offset(message, byte)
                if offset in positions:
                    continue
                with pytest.raises(OffsetMisaligned):
                    world.engine.read(stream, offset, 100)
                with pytest.raises(OffsetMisaligned):
                    world.engine.locate(stream, offset)

    def test_past_the_tail(self, world: World, positions: list[Offset]) -> None:
        tail = positions[-1]
        stream = world.engine.find(b"s")
        for messages, size in ((0, 1), (1, 0), (1, 1), (5, 5), (0, 10**15)):
            offset = Offset(tail.message + messages, tail.byte + size)
            with pytest.raises(OffsetBeyondTail) as located:
                world.engine.locate(stream, offset)
            with pytest.raises(OffsetBeyondTail) as read:
                world.engine.read(stream, offset, 10)
            for caught in (located, read):
                assert (caught.value.status, caught.value.tail) == (400, tail.token())

    def test_before_the_earliest_retained(self, world: World, positions: list[Offset]) -> None:
        """§5.6: 410, with the earliest; the earliest itself and what follows can be read."""
        state = replace(world.find(), earliest=positions[2])
        with pytest.raises(OffsetGone) as caught:
            read_slice(world.store, state, positions[1], 10)
        assert (caught.value.status, caught.value.earliest) == (410, positions[2].token())
        assert read_slice(world.store, state, positions[2], 1).end == positions[3]
        with pytest.raises(OffsetMisaligned):
            read_slice(world.store, state, Offset(positions[2].message + 1, positions[2].byte), 9)

    def test_an_empty_stream(self, world: World, forget: Forget) -> None:
        world.create()
        forget(world)
        assert world.read() == (b"", START)
        for offset in (Offset(0, 1), Offset(1, 0), Offset(1, 1)):
            with pytest.raises(OffsetBeyondTail):
                world.read(start=offset)

    def test_an_old_reader_keeps_its_view(self, world: World) -> None:
        """What is appended later is not in a slice of an earlier state."""
        world.create(body=b"a")
        before = world.find()
        world.append(body=b"b")
        piece = read_slice(world.store, before, START, 100)
        assert (b"".join(piece.parts), piece.end) == (b"a", before.tail)


class TestCheckpoints:
    @pytest.mark.parametrize(
        "count",
        slow_but([300], [CHECKPOINT_RECORDS - 1, CHECKPOINT_RECORDS, CHECKPOINT_RECORDS + 1, 300]),
    )
    def test_by_number_of_records(self, world: World, forget: Forget, count: int) -> None:
        world.create()
        replies: list[Outcome] = []
        for at in range(count):
            claim = ProducerHeaders(f"p{at % 3}", 0, at // 3)
            world.submit(b"s", Append(b"%d," % at, "text/plain", False, claim), replies)
        world.until(lambda: len(replies) == count)
        state = world.find()
        forget(world)
        assert world.find() == state
        assert world.read()[0] == b"".join(b"%d," % at for at in range(count))
        retry = Append(b"x", "text/plain", False, ProducerHeaders("p0", 0, 0))
        assert result(world.do(b"s", retry)) == "duplicate"

    @pytest.mark.parametrize("size", [CHECKPOINT_BYTES - 1, CHECKPOINT_BYTES, 700_000])
    def test_by_bytes(self, world: World, forget: Forget, size: int) -> None:
        world.create()
        for at in range(3):
            world.append(body=bytes([65 + at]) * size)
        state = world.append(body=b"end")
        forget(world)
        assert world.find() == state
        data, end = world.read()
        assert (len(data), end) == (3 * size + 3, state.tail)
        assert data.endswith(b"Cend")

    def test_many_producers(self, world: World, forget: Forget) -> None:
        """More of them than records between checkpoints; each is remembered."""
        world.create()
        replies: list[Outcome] = []
        for at in range(400):
            claim = ProducerHeaders(f"producer {at}", at, 0)
            world.submit(b"s", Append(b"x", "text/plain", False, claim), replies)
        world.until(lambda: len(replies) == 400)
        forget(world)
        producers = dict(world.find().producers.items())
        assert producers == {f"producer {at}": (at, 0) for at in range(400)}


class TestIds:
    def test_an_id_is_never_given_twice(self, world: World) -> None:
        """Not after a deletion, not after a restart, not when both come together."""
        ids = []
        for _ in range(4):
            ids.append(world.create().id)
            world.delete()
            world.sweep()
            world.reopen()
            ids.append(world.create(b"other").id)
            world.delete(b"other")
        assert sorted(set(ids)) == ids

    def test_across_the_reserved_blocks(self, world: World) -> None:
        replies: list[Outcome] = []
        for at in range(ID_BLOCK + 10):
            command = Create(id=world.engine.new_id(), content_type="text/plain")
            world.submit(b"%d" % at, command, replies)
        world.until(lambda: len(replies) == ID_BLOCK + 10)
        last = world.find(b"%d" % (ID_BLOCK + 9)).id
        assert last >= ID_BLOCK + 10
        world.reopen()
        assert world.create(b"new").id > last

    def test_a_refused_create_takes_none(self, world: World) -> None:
        world.create()
        before = world.engine.new_id()
        command = Create(id=before, content_type=JSON, body=b"{")
        assert result(world.do(b"t", command)) == "json-invalid"
        assert world.engine.new_id() == before


class TestExpiry:
    def test_ttl_ends_a_stream_at_its_moment(self, world: World, forget: Forget) -> None:
        world.create(ttl_s=2, body=b"x")
        forget(world)
        world.now = START_MS + 1999
        world.find()
        assert world.engine.remaining_ms(world.engine.find(b"s")) == 1
        world.now = START_MS + 2000
        with pytest.raises(StreamNotFound):
            world.find()
        assert result(world.do(b"s", Append(b"x", "text/plain"))) == "stream-not-found"

    def test_an_absolute_moment(self, world: World, forget: Forget) -> None:
        world.create(expires_at=START_MS + 1500)
        forget(world)
        world.append()
        world.now = START_MS + 1500
        with pytest.raises(StreamNotFound):
            world.find()

    def test_a_moment_that_has_passed(self, world: World) -> None:
        world.create(expires_at=1)
        with pytest.raises(StreamNotFound):
            world.find()
        world.sweep()
        assert world.store.due(world.now, 10) == []

    def test_what_expired_can_be_created_again_with_a_new_id(
        self, world: World, forget: Forget
    ) -> None:
        """In one command: the old stream ends and the new one begins in the same batch."""
        old = world.create(ttl_s=1, body=b"old")
        world.now += 1000
        forget(world)
        new = world.create(ttl_s=9, body=b"new!")
        assert new.id > old.id
        forget(world)
        world.now += 1000
        world.sweep()
        assert world.find() == new
        assert world.read()[0] == b"new!"
        assert world.store.garbage(9) == []

    def test_the_sweeper_ends_streams_and_reclaims_them(self, world: World, forget: Forget) -> None:
        ids = [world.create(b"%d" % at, ttl_s=1 + at, body=b"x" * 10).id for at in range(4)]
        forget(world)
        world.now = START_MS + 2000
        world.sweep()
        assert world.store.load(b"0") is None
        assert world.store.load(b"1") is None
        assert world.store.load(b"2") is not None
        assert list(world.store.scan(ids[0], 0, 10)) == []
        assert len(list(world.store.scan(ids[2], 0, 10))) == 1
        assert world.store.garbage(9) == []
        assert [due.id for due in world.store.due(START_MS * 2, 9)] == ids[2:]

    def test_the_index_entry_of_a_deleted_stream_has_no_effect(
        self, world: World, forget: Forget
    ) -> None:
        world.create(ttl_s=1)
        world.delete()
        new = world.create(body=b"forever")
        world.now += 5000
        forget(world)
        world.sweep()
        assert world.find() == new
        assert world.store.due(world.now, 9) == []

    def test_more_streams_than_one_step_takes(self, world: World) -> None:
        replies: list[Outcome] = []
        for at in range(700):
            command = Create(id=world.engine.new_id(), content_type="text/plain", ttl_s=1)
            world.submit(b"%d" % at, command, replies)
        world.until(lambda: len(replies) == 700)
        world.now += 1000
        for _ in range(7):
            world.sweep()
        assert world.store.due(world.now, 9) == []
        assert world.store.garbage(9) == []
        assert all(world.store.load(b"%d" % at) is None for at in range(700))


class TestSliding:
    """`--ttl sliding`: every read or write restarts the window."""

    @pytest.fixture
    def sliding(self, open_world: OpenWorld) -> World:
        return open_world(sliding=True)

    def test_a_write_restarts_the_window(self, sliding: World, forget: Forget) -> None:
        sliding.create(ttl_s=2)
        sliding.now += 1900
        sliding.append()
        forget(sliding)
        sliding.now += 1999
        sliding.find()
        sliding.now += 1
        with pytest.raises(StreamNotFound):
            sliding.find()

    def test_a_read_restarts_the_window_exactly(self, sliding: World) -> None:
        """In memory to the millisecond, however many reads there are."""
        sliding.create(ttl_s=2)
        for _ in range(12):
            sliding.now += 499
            sliding.touch()
        sliding.now += 1999
        sliding.sweep()
        sliding.find()
        sliding.now += 1
        with pytest.raises(StreamNotFound):
            sliding.find()

    @pytest.mark.parametrize("after_ms", [TOUCH_MS - 1, TOUCH_MS])
    def test_a_touch_survives_eviction(self, sliding: World, after_ms: int) -> None:
        sliding.create(ttl_s=2)
        sliding.now += after_ms
        sliding.touch()
        sliding.evict()
        sliding.now += 1999
        sliding.find()
        sliding.now += 1
        with pytest.raises(StreamNotFound):
            sliding.find()

    def test_a_touch_survives_an_eviction_that_is_not_on_disk_yet(
        self, open_world: OpenWorld
    ) -> None:
        """
        Goal: a stream that was just read does not vanish by being forgotten and asked for again.

        Method: touch, ask for another stream, of which one may be hot, and look again before the
        loop had a chance to write anything.
        """
        sliding = open_world(sliding=True, streams_cached_max=1)
        sliding.create(ttl_s=1)
        sliding.settle()
        sliding.now += TOUCH_MS - 1
        sliding.engine.touch(sliding.engine.find(b"s"))
        sliding.engine.stream(b"another")
        sliding.now += 500
        sliding.find()
        assert result(sliding.do(b"s", Append(b"x", "text/plain"))) == "appended"

    def test_a_touch_survives_a_restart_but_for_the_last_second(self, sliding: World) -> None:
        sliding.create(ttl_s=5)
        sliding.now += 3000
        sliding.touch()
        sliding.settle()
        sliding.now += TOUCH_MS - 1
        sliding.touch()
        sliding.reopen()
        sliding.now = START_MS + 3000 + 4999
        sliding.find()

    def test_the_sweeper_follows(self, sliding: World, forget: Forget) -> None:
        """The index is not moved with every touch: the sweeper finds out when it looks."""
        state = sliding.create(ttl_s=2)
        sliding.now += 1500
        sliding.touch()
        forget(sliding)
        sliding.now = START_MS + 2000
        sliding.sweep()
        sliding.find()
        assert [due.deadline for due in sliding.store.due(START_MS * 2, 9)] == [START_MS + 3500]
        sliding.now = START_MS + 3500
        sliding.sweep()
        assert sliding.store.load(b"s") is None
        assert sliding.create(ttl_s=2).id > state.id

    def test_a_read_does_not_bring_back_what_is_over(self, sliding: World) -> None:
        """A connection that stays open touches its stream now and then, also too late."""
        sliding.create(ttl_s=2)
        stream = sliding.engine.find(b"s")
        sliding.now += 2000
        with pytest.raises(StreamNotFound):
            sliding.find()
        sliding.engine.touch(stream)
        sliding.settle()
        with pytest.raises(StreamNotFound):
            sliding.find()

    def test_an_absolute_moment_does_not_slide(self, sliding: World, forget: Forget) -> None:
        sliding.create(expires_at=START_MS + 2000)
        sliding.now += 1500
        sliding.append()
        sliding.touch()
        forget(sliding)
        sliding.now = START_MS + 2000
        with pytest.raises(StreamNotFound):
            sliding.find()

    def test_ttl_from_creation_does_not_slide(self, world: World, forget: Forget) -> None:
        world.create(ttl_s=2)
        world.now += 1500
        world.append()
        world.touch()
        forget(world)
        world.now = START_MS + 2000
        with pytest.raises(StreamNotFound):
            world.find()


class TestEviction:
    def test_names_that_do_not_exist_evict_nothing(self, open_world: OpenWorld) -> None:
        """Reads or writes of random names must not make the streams that exist cold."""
        world = open_world(streams_cached_max=4)
        for at in range(4):
            world.create(b"%d" % at)
        hot = set(world.engine.stream_cache._entries)
        for at in range(20):
            with pytest.raises(StreamNotFound):
                world.find(b"nobody %d" % at)
            assert (
                result(world.do(b"none %d" % at, Append(b"x", "text/plain"))) == "stream-not-found"
            )
            assert result(world.do(b"none %d" % at, Delete())) == "stream-not-found"
        assert set(world.engine.stream_cache._entries) >= {b"1", b"2", b"3"} & hot
        assert len(world.engine.stream_cache) <= 5

    def test_the_number_of_cached_streams_is_bounded(self, open_world: OpenWorld) -> None:
        world = open_world(streams_cached_max=3)
        for at in range(20):
            world.create(b"%d" % at, body=b"%d" % at)
        assert len(world.engine.stream_cache) <= 3
        for at in range(20):
            assert world.read(b"%d" % at)[0] == b"%d" % at
        assert len(world.engine.stream_cache) <= 3

    @pytest.mark.parametrize("hot_max", [1, 2, 3])
    def test_a_pending_stream_has_one_entry_after_eviction(
        self, open_world: OpenWorld, hot_max: int
    ) -> None:
        """
        Goal: a command is decided upon the one state that its stream has.

        Method: in one turn of the loop, more streams than may be hot, each written twice; then
        all of them at once again, and a look at each.
        """
        world = open_world(streams_cached_max=hot_max)
        replies: list[Outcome] = []

        async def one_turn() -> None:
            for at in range(6):
                key = b"%d" % at
                command = Create(id=world.engine.new_id(), content_type="text/plain")
                world.engine.submit(key, command, replies.append)
                world.engine.submit(key, Append(b"a", "text/plain"), replies.append)
            for at in range(6):
                world.engine.submit(b"%d" % at, Append(b"b", "text/plain"), replies.append)
                with pytest.raises(StreamNotFound):
                    world.engine.find(b"nobody %d" % at)

        world.run(one_turn())
        world.until(lambda: len(replies) == 18)
        effects = [result(reply) for reply in replies]
        assert sorted(effects) == ["appended"] * 12 + ["created"] * 6
        for at in range(6):
            assert world.read(b"%d" % at) == (b"ab", Offset(2, 2))

    def test_a_stream_in_use_has_one_entry_after_eviction(self, open_world: OpenWorld) -> None:
        world = open_world(streams_cached_max=2)
        world.create(b"watched")
        stream = world.engine.find(b"watched")
        for at in range(10):
            world.create(b"%d" % at)
        assert world.engine.find(b"watched") is stream
