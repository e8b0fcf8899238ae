"""Rule 3: a failed write or fsync is final."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.engine.base import Store
from tailrace.engine.engine import Outcome
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import Append, Create, Delete
from tests.contract.harness import World, result
from tests.engine.conftest import Held
from tests.engine.proxy import StoreProxy

TEXT = "text/plain"
IO_ERROR = "IO error: No such device"
FULL = "IO error: No space left on device: While appending to file"


def break_disk(disk: StoreProxy, where: str, message: str = IO_ERROR) -> None:
    error = Exception(message)  # rocksdict raises plain Exception
    if where == "write":
        disk.write_error = error
    else:
        disk.sync_error = error


@pytest.fixture(params=["write", "sync"])
def where(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


class TestAFailureIsFinal:
    def test_all_that_is_pending_gets_a_response_that_says_unknown(
        self, either: Held, where: str
    ) -> None:
        world, disk = either
        world.create(body=b"a")
        world.create(b"t")
        break_disk(disk, where)
        replies: list[Outcome] = []

        async def submit() -> None:
            engine = world.engine
            engine.submit(b"s", Append(b"b", TEXT), replies.append)
            engine.submit(b"s", Append(b"", None, True), replies.append)
            engine.submit(b"s", Append(b"c", TEXT), replies.append)
            engine.submit(b"t", Delete(), replies.append)

        world.run(submit())
        world.until(lambda: len(replies) == 4)
        assert [result(reply) for reply in replies] == ["storage-failed"] * 4
        assert len(world.failures) == 1
        assert world.engine.failure is world.failures[0]

    @pytest.mark.parametrize("message", [IO_ERROR, FULL])
    def test_any_failure_makes_the_outcome_unknown(
        self, either: Held, where: str, message: str
    ) -> None:
        """507 would say that nothing was stored; after a failed write that is unknown."""
        world, disk = either
        world.create()
        break_disk(disk, where, message)
        assert result(world.do(b"s", Append(b"b", TEXT))) == "storage-failed"

    def test_later_commands_are_refused_and_nothing_is_written_or_synced(
        self, either: Held, where: str
    ) -> None:
        """An fsync is never tried again, also not when the disk seems to be well."""
        world, disk = either
        world.create(body=b"a")
        break_disk(disk, where)
        world.do(b"s", Append(b"b", TEXT))
        disk.write_error = disk.sync_error = None
        writes, syncs = disk.writes, disk.syncs
        for command in (
            Append(b"b", TEXT),
            Append(b"", None, True),
            Delete(),
            Create(id=77, content_type=TEXT),
        ):
            assert result(world.do(b"s", command)) == "storage-failed"
            assert result(world.do(b"new", command)) == "storage-failed"
        world.engine._sweeper._sweep()
        world.turn()
        assert (disk.writes, disk.syncs) == (writes, syncs)
        assert len(world.failures) == 1

    def test_what_was_durable_can_be_read_and_what_was_not_is_never_seen(
        self, either: Held, where: str
    ) -> None:
        world, disk = either
        world.create(body=b"a")
        break_disk(disk, where)
        world.do(b"s", Append(b"b", TEXT, True))
        assert world.read() == (b"a", Offset(1, 1))
        assert not world.find().closed

    def test_commands_behind_a_failing_sync_get_the_failure(self, held: Held) -> None:
        world, disk = held
        world.create()
        world.settle()
        disk.gate.clear()
        replies: list[Outcome] = []
        for _ in range(3):
            world.submit(b"s", Append(b"x", TEXT), replies)
            world.turn()
        world.submit(b"t", Create(id=world.engine.new_id(), content_type=TEXT), replies)
        break_disk(disk, "sync")
        world.until(lambda: disk.syncs > disk.syncs_done)
        syncs = disk.syncs
        disk.gate.set()
        world.until(lambda: len(replies) == 4)
        assert [result(reply) for reply in replies] == ["storage-failed"] * 4
        world.turn()
        assert disk.syncs == syncs
        assert len(world.failures) == 1

    def test_a_failed_write_does_not_affect_the_batch_before_it(self, held: Held) -> None:
        """The first batch is durable and gets its replies, though the second fails at once."""
        world, disk = held
        world.create()
        world.settle()
        disk.gate.clear()
        first: list[Outcome] = []
        second: list[Outcome] = []
        world.submit(b"s", Append(b"1", TEXT), first)
        world.until(lambda: disk.syncs > disk.syncs_done)
        world.submit(b"s", Append(b"2", TEXT), second)
        break_disk(disk, "write")
        disk.gate.set()
        world.until(lambda: bool(first) and bool(second))
        assert [result(first[0]), result(second[0])] == ["appended", "storage-failed"]
        assert world.read() == (b"1", Offset(1, 1))

    def test_a_reply_that_raises_does_not_hide_the_failure(self, either: Held, where: str) -> None:
        """`on_failure` ends the process: it must be called whatever a connection does."""
        world, disk = either
        world.create()
        break_disk(disk, where)
        replies: list[Outcome] = []

        def broken(outcome: Outcome) -> None:
            raise RuntimeError("a connection in a bad state")

        async def submit() -> None:
            loop = world.engine.commit._loop
            loop.set_exception_handler(lambda _, context: None)
            world.engine.submit(b"s", Append(b"x", TEXT), broken)
            world.engine.submit(b"s", Append(b"x", TEXT), replies.append)

        world.run(submit())
        world.until(lambda: world.engine.failure is not None)
        world.turn()
        assert [result(reply) for reply in replies] == ["storage-failed"]
        assert len(world.failures) == 1

    def test_closing_a_failed_engine_returns(self, either: Held, where: str) -> None:
        """The fixture closes it again at its end: here it is closed with commands pending."""
        world, disk = either
        world.create()
        break_disk(disk, where)
        world.submit(b"s", Append(b"x", TEXT), [])
        world.turn()


class TestDiskFull:
    """There is no room: appends and creates are refused, deletes and reads are not."""

    @pytest.fixture
    def tight(self, tmp_path: Path) -> Iterator[tuple[World, list[int]]]:
        room = [1000]

        class Tight(StoreProxy):
            def free_bytes(self) -> int | None:
                return room[0]

        def wrap(store: Store) -> Store:
            return Tight(store)

        with World("memory", tmp_path / "data", wrap=wrap) as world:
            yield world, room

    def test_appends_are_refused_until_there_is_room_again(
        self, tight: tuple[World, list[int]]
    ) -> None:
        world, room = tight
        world.create(body=b"x" * 10)
        room[0] = 5
        world.engine.measure_room()
        before = world.find()
        assert result(world.do(b"s", Append(b"123456", TEXT))) == "disk-full"
        new = Create(id=world.engine.new_id(), content_type=TEXT, body=b"123456")
        assert result(world.do(b"t", new)) == "disk-full"
        assert world.find() == before
        assert result(world.do(b"s", Append(b"12345", TEXT))) == "appended"
        room[0] = -1
        world.engine.measure_room()
        assert result(world.do(b"s", Append(b"1", TEXT))) == "disk-full"
        assert world.read()[0] == b"x" * 10 + b"12345"
        assert result(world.do(b"s", Delete())) == "deleted"
        room[0] = 1000
        assert world.create(body=b"again").tail == Offset(1, 5)

    def test_a_refusal_that_needs_no_room_is_not_hidden_by_it(
        self, tight: tuple[World, list[int]]
    ) -> None:
        world, room = tight
        world.create(closed=True)
        room[0] = -1
        world.engine.measure_room()
        assert result(world.do(b"s", Append(b"x", TEXT))) == "stream-closed"
        assert result(world.do(b"nobody", Append(b"x", TEXT))) == "stream-not-found"

    def test_what_one_turn_takes_is_counted(self, tight: tuple[World, list[int]]) -> None:
        """A burst cannot take more room than there is, though the disk was asked once."""
        world, room = tight
        world.create()
        room[0] = 30
        world.engine.measure_room()
        replies: list[Outcome] = []

        async def burst() -> None:
            for _ in range(3):
                world.engine.submit(b"s", Append(b"x" * 10, TEXT), replies.append)
            room[0] = 0
            world.engine.submit(b"s", Append(b"x" * 10, TEXT), replies.append)

        world.run(burst())
        world.until(lambda: len(replies) == 4)
        assert sorted(result(reply) for reply in replies) == ["appended"] * 3 + ["disk-full"]
