"""
Snapshots below HTTP: when they become visible, what keeps their bytes, and what is left of them.

An inline snapshot travels in the record that publishes it; a large one is in its place before.
"""

import asyncio
import gc
import hashlib
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine.base import SNAPSHOT_CHUNK_BYTES, Garbage, Spool
from tailrace.engine.codec import decode_state, encode_state
from tailrace.engine.engine import ID_BLOCK, Engine, Outcome
from tailrace.engine.memory import MemoryStore
from tailrace.engine.pins import Pins
from tailrace.engine.read import read_slice
from tailrace.engine.rocks import RocksStore
from tailrace.protocol.errors import OffsetGone, Refusal
from tailrace.protocol.machine import apply, decide
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import (
    Append,
    Command,
    Create,
    Delete,
    Publish,
    Record,
    SnapshotInfo,
    StreamState,
    Touch,
)
from tailrace.server.handlers.bootstrap import BootstrapHandler
from tailrace.server.handlers.upload import Upload
from tailrace.server.message import Request, Response
from tailrace.server.routing.routes import BOOTSTRAP
from tailrace.server.routing.target import Target
from tests.contract.harness import KINDS, World, result
from tests.engine.conftest import Held
from tests.engine.proxy import StoreProxy

TEXT = "text/plain"
JSON = "application/json"
BLOB = "application/x-state"
LARGE = SNAPSHOT_CHUNK_BYTES + 4096


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with World(kind, tmp_path / "data") as opened:
        yield opened


@pytest.fixture(params=["inline", "file"])
def size(request: pytest.FixtureRequest) -> int:
    """How large a snapshot is: small enough for the log, or two chunks beside it."""
    return 1000 if request.param == "inline" else LARGE


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(f"{size}/{seed}").randbytes(size)


def take_id(world: World) -> int:
    async def taken() -> int:
        return world.engine.take_id()

    return world.run(taken())


def prepare(
    world: World, stream_id: int, offset: Offset, content: bytes, content_type: str = BLOB
) -> Publish:
    """Bring the bytes to where they belong before the command that publishes them."""
    snapshot_id = take_id(world)
    inline = len(content) < SNAPSHOT_CHUNK_BYTES
    if not inline:
        spool = world.store.spool(snapshot_id)
        for at in range(0, len(content), SNAPSHOT_CHUNK_BYTES):
            spool.write(content[at : at + SNAPSHOT_CHUNK_BYTES])
        spool.finish()
    digest = hashlib.sha256(content).digest()
    snapshot = SnapshotInfo(offset, snapshot_id, len(content), content_type, digest, inline)
    return Publish(stream_id, snapshot, content if inline else None)


def publish(
    world: World, content: bytes, key: bytes = b"s", offset: Offset | None = None
) -> StreamState:
    """Publish at an offset, or at the tail; the state after it."""
    state = world.find(key)
    return world.state(key, prepare(world, state.id, offset or state.tail, content))


def content_of(world: World, state: StreamState) -> bytes:
    """The bytes of a state's snapshot, as a download reads them."""
    snapshot = state.snapshot
    assert snapshot is not None
    count = max(1, -(-snapshot.size // SNAPSHOT_CHUNK_BYTES))
    return b"".join(world.store.read_snapshot(snapshot, index) for index in range(count))


def messages_of(world: World, state: StreamState) -> bytes:
    """What a state retains, as a bootstrap reads it."""
    return b"".join(read_slice(world.store, state, state.earliest, 1 << 30).parts)


def stored_ids(world: World) -> set[int]:
    """The snapshots whose bytes take up room, in the log or beside it."""
    store = world.store.inner if isinstance(world.store, StoreProxy) else world.store
    if isinstance(store, MemoryStore):
        return set(store.snapshots)
    files = {int(path.name) for path in world.directory.glob("snapshots/*")}
    entries = {int.from_bytes(key, "big") for key in store._snapshots.keys()}  # type: ignore[attr-defined]  # noqa: SIM118
    assert files <= entries
    return entries


def swept(world: World, holds: Callable[[], bool]) -> None:
    """Sweep until something holds; files are removed by a thread, in between."""
    sweeper = world.engine._sweeper
    for _ in range(50):
        world.sweep()
        world.until(lambda: not (sweeper._expiring or sweeper._reclaiming))
        if holds():
            return
    raise AssertionError("the sweeper never did it")


def one_look(world: World) -> None:
    """One look of the sweeper, however busy the disk is."""

    async def look() -> None:
        world.engine._sweeper._timer.cancel()
        world.engine._sweeper._sweep()

    world.run(look())


class TestPins:
    """Pinned data is not reclaimed; other data is."""

    def state(self, stream_id: int, earliest: Offset, snapshot_id: int | None) -> StreamState:
        snapshot = None
        if snapshot_id is not None:
            snapshot = SnapshotInfo(earliest, snapshot_id, 1, BLOB, b"", True)
        return StreamState(
            id=stream_id,
            content_type=TEXT,
            json=False,
            created_at=1,
            touched_at=1,
            written_at=1,
            tail=Offset(9, 90),
            earliest=earliest,
            snapshot=snapshot,
        )

    def test_a_stream_and_its_snapshot_are_held_until_released(self) -> None:
        pins = Pins()
        release = pins.hold(self.state(7, Offset(1, 10), 8))
        for garbage in (Garbage(7, 1), Garbage(8, 1), Garbage(8, 1, file=True)):
            assert not pins.allow(garbage)
        assert pins.allow(Garbage(9, 1))
        release()
        assert pins.allow(Garbage(7, 1)) and pins.allow(Garbage(8, 1))

    def test_only_data_before_a_reader_may_be_trimmed(self) -> None:
        pins = Pins()
        pins.hold(self.state(7, Offset(1, 10), 8))
        assert pins.allow(Garbage(7, 1, until=9))
        assert pins.allow(Garbage(7, 1, until=10))
        assert not pins.allow(Garbage(7, 1, until=11))

    def test_the_earliest_reader_counts(self) -> None:
        pins = Pins()
        late = pins.hold(self.state(7, Offset(2, 20), 8))
        early = pins.hold(self.state(7, START, None))
        assert not pins.allow(Garbage(7, 1, until=20))
        early()
        assert pins.allow(Garbage(7, 1, until=20))
        assert not pins.allow(Garbage(7, 1, until=21))
        late()
        assert pins.allow(Garbage(7, 1, until=21))

    def test_releasing_twice_does_not_release_another_reader(self) -> None:
        pins = Pins()
        state = self.state(7, Offset(1, 10), 8)
        first, second = pins.hold(state), pins.hold(state)
        first()
        first()
        assert not pins.allow(Garbage(8, 1))
        second()
        assert pins.allow(Garbage(8, 1))
        assert pins._held == {}


class TestReclaiming:
    """What is superseded goes, but not under a reader's hands."""

    def test_a_superseded_snapshot_and_its_messages_are_reclaimed(
        self, world: World, size: int
    ) -> None:
        world.create(body=b"first")
        before = publish(world, noise(size))
        world.append(body=b"second")
        after = publish(world, noise(size, 1))
        assert before.snapshot is not None and after.snapshot is not None
        swept(world, lambda: not world.store.garbage(9))
        assert stored_ids(world) == {after.snapshot.id}
        assert list(world.store.scan(after.id, 0, after.tail.byte)) == []
        assert content_of(world, world.find()) == noise(size, 1)

    def test_a_reader_keeps_what_it_reads_until_it_is_done(self, world: World, size: int) -> None:
        """Its snapshot, and the messages after that, though both are superseded."""
        world.create(body=b"first")
        publish(world, noise(size))
        view = world.append(body=b"second")
        release = world.engine.pins.hold(view)
        world.append(body=b"third")
        after = publish(world, noise(size, 1))
        assert view.snapshot is not None and after.snapshot is not None
        for _ in range(3):
            world.sweep()
            assert content_of(world, view) == noise(size)
            assert messages_of(world, view) == b"second"
        # The bytes of the first message are no longer retained.
        assert world.store.garbage(9, world.engine.pins.allow) == []
        assert world.store.garbage(9) != []
        release()
        swept(world, lambda: not world.store.garbage(9))
        assert stored_ids(world) == {after.snapshot.id}
        assert list(world.store.scan(after.id, 0, after.tail.byte)) == []

    def test_a_later_reader_does_not_pin_earlier_data(self, world: World, size: int) -> None:
        world.create(body=b"first")
        first = publish(world, noise(size))
        world.append(body=b"second")
        view = publish(world, noise(size, 1))
        assert first.snapshot is not None and view.snapshot is not None
        release = world.engine.pins.hold(view)
        swept(world, lambda: not world.store.garbage(9))
        assert stored_ids(world) == {view.snapshot.id}
        assert list(world.store.scan(view.id, 0, view.tail.byte)) == []
        assert content_of(world, view) == noise(size, 1)
        release()

    def test_a_reader_keeps_a_deleted_stream(self, world: World, size: int) -> None:
        world.create(body=b"first")
        publish(world, noise(size))
        view = world.append(body=b"second")
        release = world.engine.pins.hold(view)
        world.delete()
        world.create(body=b"another stream of this name")
        for _ in range(3):
            world.sweep()
            assert content_of(world, view) == noise(size)
            assert messages_of(world, view) == b"second"
        release()
        swept(world, lambda: not world.store.garbage(9))
        assert stored_ids(world) == set()
        assert list(world.store.scan(view.id, 0, view.tail.byte)) == []
        assert world.read()[0] == b"another stream of this name"

    def test_what_is_held_does_not_keep_others_from_being_reclaimed(self, world: World) -> None:
        """More garbage is held than one step looks at; what is free goes all the same."""
        held = []
        for at in range(80):
            key = b"held%d" % at
            held.append(world.engine.pins.hold(world.create(key, body=b"x")))
            world.delete(key)
        free = world.create(b"free", body=b"x")
        world.delete(b"free")
        swept(world, lambda: Garbage(free.id, 1) not in world.store.garbage(1000))
        assert len(world.store.garbage(1000)) == 80
        for release in held:
            release()
        swept(world, lambda: not world.store.garbage(1))

    def test_a_batch_of_messages_that_a_snapshot_cuts_stays_readable(self, world: World) -> None:
        """One record holds them all: it goes when its last message is covered, not before."""
        world.create(content_type=JSON)
        state = world.append(body=b"[1,22,333]", content_type=JSON)
        publish(world, b"so far: 1", offset=Offset(1, 2))
        swept(world, lambda: not world.store.garbage(9))
        assert world.read(start=Offset(1, 2)) == (b"22,333,", state.tail)
        assert world.read(start=Offset(2, 5)) == (b"333,", state.tail)
        with pytest.raises(OffsetGone):
            world.read(start=START)
        world.evict()
        assert world.read(start=Offset(1, 2)) == (b"22,333,", state.tail)
        publish(world, b"so far: all")
        swept(world, lambda: not world.store.garbage(9))
        assert list(world.store.scan(state.id, 0, state.tail.byte)) == []

    def test_many_records_are_trimmed_and_none_too_many(self, world: World) -> None:
        """More than are deleted one by one."""
        world.create(body=b"0,")
        for at in range(1, 400):
            world.append(body=b"%d," % at)
        cut = world.find().tail
        world.append(body=b"kept")
        state = publish(world, b"all but the last", offset=cut)
        swept(world, lambda: not world.store.garbage(9))
        assert messages_of(world, state) == b"kept"
        assert len(list(world.store.scan(state.id, 0, state.tail.byte))) == 1
        world.evict()
        assert world.find() == state

    def test_a_cancelled_upload_leaves_nothing(self, world: World) -> None:
        spool = world.store.spool(take_id(world))
        spool.write(noise(SNAPSHOT_CHUNK_BYTES))
        spool.discard()
        finished = world.store.spool(take_id(world))
        finished.write(noise(10))
        finished.finish()
        finished.discard()
        untouched = world.store.spool(take_id(world))
        untouched.discard()
        assert stored_ids(world) == set()

    def test_an_upload_that_was_never_published_does_not_outlive_a_restart(
        self, tmp_path: Path
    ) -> None:
        with World("rocks", tmp_path / "data") as world:
            world.create(body=b"x")
            kept = publish(world, noise(LARGE))
            prepare(world, kept.id, kept.tail, noise(LARGE, 1))
            half = world.store.spool(take_id(world))
            half.write(noise(SNAPSHOT_CHUNK_BYTES))
            assert len(list(world.directory.glob("snapshots/*"))) == 3
            world.reopen()
            assert kept.snapshot is not None
            names = [int(path.name) for path in world.directory.glob("snapshots/*")]
            assert names == [kept.snapshot.id]
            assert content_of(world, world.find()) == noise(LARGE)

    def test_a_file_that_cannot_be_removed_does_not_block_the_others(self, tmp_path: Path) -> None:
        """
        Goal: one bad entry is not the end of all reclaiming.

        Method: in place of the first file there is something that cannot be unlinked; what is
        deleted after it must give its room back all the same.
        """
        with World("rocks", tmp_path / "data") as world:
            world.engine.commit._loop.set_exception_handler(lambda _, context: None)
            for key in (b"bad", b"good"):
                world.create(key)
            bad = publish(world, noise(LARGE), b"bad").snapshot
            good = publish(world, noise(LARGE, 1), b"good").snapshot
            assert bad is not None and good is not None
            path = world.directory / "snapshots" / f"{bad.id:020d}"
            path.unlink()
            (path / "inside").mkdir(parents=True)
            world.delete(b"bad")
            world.delete(b"good")
            swept(world, lambda: {entry.id for entry in world.store.garbage(9)} <= {bad.id})
            assert stored_ids(world) == {bad.id}

    def test_a_directory_among_the_files_does_not_keep_the_store_closed(
        self, tmp_path: Path
    ) -> None:
        """A disk that is mounted there has a `lost+found`."""
        (tmp_path / "data" / "snapshots" / "lost+found").mkdir(parents=True)
        with World("rocks", tmp_path / "data") as world:
            world.create(body=b"x")
            state = publish(world, noise(LARGE))
            world.reopen()
            assert content_of(world, state) == noise(LARGE)


class TestWhileABatchIsSyncing:
    """The disk hangs: what is on its way to it is neither visible nor a reason to forget."""

    def stop(self, held: Held) -> None:
        held.world.settle()
        held.disk.gate.clear()

    def test_a_snapshot_is_not_visible_before_its_batch_is_durable(
        self, held: Held, size: int
    ) -> None:
        world, disk = held
        before = world.create(body=b"first")
        command = prepare(world, before.id, before.tail, noise(size))
        self.stop(held)
        replies: list[Outcome] = []
        syncs = disk.syncs
        world.submit(b"s", command, replies)
        world.until(lambda: disk.syncs > syncs)
        world.turn()
        assert replies == []
        assert world.find() == before
        # Not even the beginning is gone.
        assert world.read() == (b"first", before.tail)
        disk.gate.set()
        world.until(lambda: len(replies) == 1)
        assert result(replies[0]) == "published"
        after = world.find()
        assert after.earliest == before.tail
        assert content_of(world, after) == noise(size)
        with pytest.raises(OffsetGone):
            world.read()

    def test_the_same_again_and_refusals_wait_for_what_they_rest_on(self, held: Held) -> None:
        """204 says that it is there, 409 and 410 that another one is: a crash must not undo it."""
        world, disk = held
        world.create(body=b"first")
        state = world.append(body=b"second")
        at = state.tail
        publication = prepare(world, state.id, at, b"content")
        again = prepare(world, state.id, at, b"content")
        other = prepare(world, state.id, at, b"another")
        older = prepare(world, state.id, Offset(1, 5), b"older")
        self.stop(held)
        replies: list[Outcome] = []
        for command in (publication, again, other, older):
            world.submit(b"s", command, replies)
            world.turn()
        assert replies == []
        disk.gate.set()
        world.until(lambda: len(replies) == 4)
        told_all = [result(reply) for reply in replies]
        assert told_all == ["published", "existed", "snapshot-conflict", "offset-gone"]
        assert content_of(world, world.find()) == b"content"

    def test_nothing_is_reclaimed(self, held: Held, size: int) -> None:
        """
        Goal: a reader that starts now, upon the state that is still the durable one, is served.

        Method: what supersedes a snapshot is written and hangs in its fsync. The sweeper looks
        several times; then a reader starts, and reads while the sweeper goes on.
        """
        world, disk = held
        world.create(body=b"first")
        publish(world, noise(size))
        before = world.append(body=b"second")
        command = prepare(world, before.id, before.tail, noise(size, 1))
        self.stop(held)
        syncs = disk.syncs
        world.submit(b"s", command)
        world.until(lambda: disk.syncs > syncs)
        assert len(world.store.garbage(9)) >= 2
        for _ in range(3):
            one_look(world)
            world.turn()
        view = world.find()
        assert view == before
        release = world.engine.pins.hold(view)
        disk.gate.set()
        world.until(lambda: world.find().earliest == before.tail)
        for _ in range(3):
            world.sweep()
            assert content_of(world, view) == noise(size)
            assert messages_of(world, view) == b"second"
        release()
        swept(world, lambda: not world.store.garbage(9))
        snapshot = world.find().snapshot
        assert snapshot is not None
        assert stored_ids(world) == {snapshot.id}

    def test_a_failed_batch_leaves_the_old_snapshot_and_its_bytes(
        self, held: Held, size: int
    ) -> None:
        """Whether the new one is there is unknown; the old one is not touched by this process."""
        world, disk = held
        world.create(body=b"first")
        publish(world, noise(size))
        before = world.append(body=b"second")
        command = prepare(world, before.id, before.tail, noise(size, 1))
        self.stop(held)
        disk.sync_error = OSError("Input/output error")
        replies: list[Outcome] = []
        world.submit(b"s", command, replies)
        disk.gate.set()
        world.until(lambda: len(replies) == 1)
        assert result(replies[0]) == "storage-failed"
        one_look(world)
        world.turn()
        assert world.find() == before
        assert content_of(world, before) == noise(size)
        assert messages_of(world, before) == b"second"


class TestOneBatch:
    """What is decided in one turn shares a batch, and is decided one after the other."""

    def submit_all(self, world: World, *commands: Command) -> list[str]:
        replies: list[Outcome] = []

        async def one_turn() -> None:
            for command in commands:
                world.engine.submit(b"s", command, replies.append)

        world.run(one_turn())
        world.until(lambda: len(replies) == len(commands))
        return [result(reply) for reply in replies]

    def test_a_snapshot_of_a_stream_that_was_deleted_and_created_is_refused(
        self, world: World, size: int
    ) -> None:
        """Its offset is one of the new stream too, and its bytes are of the old one."""
        old = world.create(body=b"old")
        command = prepare(world, old.id, old.tail, noise(size))
        create = Create(id=world.engine.new_id(), content_type=TEXT, body=b"new")
        outcome = self.submit_all(world, Delete(), create, command)
        assert outcome == ["deleted", "created", "stream-not-found"]
        assert world.find().snapshot is None
        assert world.read() == (b"new", Offset(1, 3))

    def test_a_snapshot_that_is_deleted_at_once_leaves_nothing(
        self, world: World, size: int
    ) -> None:
        old = world.create(body=b"old")
        first = prepare(world, old.id, old.tail, noise(size))
        assert self.submit_all(world, first, Delete()) == ["published", "deleted"]
        swept(world, lambda: not world.store.garbage(9))
        assert stored_ids(world) == set()
        assert list(world.store.scan(old.id, 0, 99)) == []

    def test_two_snapshots_and_an_append_between_them(self, world: World, size: int) -> None:
        old = world.create(body=b"old")
        after = Offset(2, 6)
        first = prepare(world, old.id, old.tail, noise(size))
        second = prepare(world, old.id, after, noise(size, 1))
        late = Append(b"last", TEXT)
        outcome = self.submit_all(world, first, Append(b"new", TEXT), second, late)
        assert outcome == ["published", "appended", "published", "appended"]
        state = world.find()
        assert (state.earliest, state.tail) == (after, Offset(3, 10))
        world.evict()
        assert world.find() == state
        swept(world, lambda: not world.store.garbage(9))
        assert stored_ids(world) == {second.snapshot.id}
        assert content_of(world, state) == noise(size, 1)
        assert messages_of(world, state) == b"last"


class TestWhatSurvives:
    def test_eviction_and_reopening(self, world: World, size: int) -> None:
        """All of the state, whatever came before and after the snapshot."""
        world.create(content_type=JSON, ttl_s=1000, body=b"[1,22]")
        world.append(body=b"[333]", content_type=JSON, seq="a")
        publish(world, noise(size), offset=Offset(1, 2))
        world.now += 1
        for lose in (world.evict, world.reopen):
            before = world.append(body=b"4", content_type=JSON)
            world.settle()
            lose()
            assert world.find() == before
            assert content_of(world, before) == noise(size)
            assert messages_of(world, before).startswith(b"22,333,4,")
            assert result(world.do(b"s", prepare(world, before.id, Offset(1, 2), noise(size)))) == (
                "existed"
            )
        world.append(body=b"", content_type=None, closes=True)
        closed = publish(world, noise(size, 1))
        world.reopen()
        assert world.find() == closed
        assert closed.closed
        assert content_of(world, closed) == noise(size, 1)
        assert messages_of(world, closed) == b""

    def test_a_crash_after_the_reply(self, tmp_path: Path, size: int) -> None:
        """Method: a copy of the directory, made while the first engine has not closed anything."""
        with World("rocks", tmp_path / "data") as world:
            world.create(body=b"first")
            before = publish(world, noise(size))
            world.settle()
            shutil.copytree(tmp_path / "data", tmp_path / "copy")
            (tmp_path / "copy" / "LOCK").unlink()
            used = before.snapshot.id if before.snapshot is not None else 0
        with World("rocks", tmp_path / "copy") as crashed:
            assert crashed.find() == before
            assert content_of(crashed, before) == noise(size)
            assert take_id(crashed) > used

    def test_no_id_is_used_twice(self, world: World) -> None:
        """To streams or snapshots, over many blocks of ids, evictions and restarts."""
        given: list[int] = []
        for round_ in range(3):
            given.append(world.create(b"stream%d" % round_).id)

            async def take_many() -> None:
                given.extend(world.engine.take_id() for _ in range(ID_BLOCK + 1))

            world.run(take_many())
            given.append(world.create(b"later%d" % round_).id)
            world.reopen()
            given.append(take_id(world))
            world.reopen()
        assert len(set(given)) == len(given)
        assert given == sorted(given)

    def test_a_failed_engine_gives_ids_without_harm(self, held: Held) -> None:
        """Uploads that are under way when the disk fails may still ask for one."""
        world, disk = held
        world.create()
        disk.write_error = OSError("Input/output error")
        replies: list[Outcome] = []
        world.submit(b"s", Append(b"x", TEXT), replies)
        world.until(lambda: len(replies) == 1)
        assert take_id(world) < take_id(world)


class TestServer:
    """Two things of the server's that hang on the engine's time and memory."""

    def test_an_upload_that_is_cancelled_while_the_engine_closes(self, tmp_path: Path) -> None:
        """
        Goal: a stop amid an upload is a clean one, and the next start finds nothing of it.

        Method: the upload is cancelled while a thread writes its first chunk, which takes until
        the engine waits for its threads to end.
        """
        problems: list[object] = []

        class SlowFiles(StoreProxy):
            def spool(self, snapshot_id: int) -> Spool:
                spool = self.inner.spool(snapshot_id)
                write = spool.write

                def slow_write(chunk: bytes) -> None:
                    end = time.monotonic() + 1
                    while not engines[0].blob_threads._shutdown and time.monotonic() < end:
                        time.sleep(0.001)
                    write(chunk)

                spool.write = slow_write  # type: ignore[method-assign]
                return spool

        engines: list[Engine] = []

        async def run() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
            engine = Engine(SlowFiles(RocksStore(tmp_path / "data")), clock=lambda: 1)
            engines.append(engine)
            # The first one is noted in a batch, beside which an upload would pause.
            engine.take_id()
            await asyncio.sleep(0)
            upload = Upload(engine, 1 << 30)
            upload.write(noise(SNAPSHOT_CHUNK_BYTES))
            await asyncio.sleep(0)
            upload.cancel()
            await asyncio.wait_for(engine.close(), 30)
            async with asyncio.timeout(30):
                # The upload's own task, which is not awaited.
                while upload._writer is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

        asyncio.run(run())
        engines.clear()
        gc.collect()
        assert problems == []
        RocksStore(tmp_path / "data").close()
        assert list(tmp_path.glob("data/snapshots/*")) == []

    def test_a_bootstrap_knows_of_appends_though_its_stream_was_forgotten(
        self, tmp_path: Path
    ) -> None:
        """
        Goal: `Stream-Up-To-Date` is true only if nothing lies beyond what is returned (X§3.2).

        Method: while the bytes are searched for the boundary, the stream is pushed out of memory
        by another one, and then appended to.
        """
        gate = threading.Event()

        class SlowReads(StoreProxy):
            def read_snapshot(self, snapshot: SnapshotInfo, index: int) -> bytes:
                assert gate.wait(20)
                return super().read_snapshot(snapshot, index)

        with (
            World("rocks", tmp_path / "data", wrap=SlowReads, streams_cached_max=1) as world,
            ExitStack() as stack,
        ):
            stack.callback(gate.set)
            world.create(body=b"first")
            publish(world, noise(LARGE))

            async def start() -> "asyncio.Task[Response]":
                request = Request("GET", b"/", b"", {}, b"")
                request.target = Target(BOOTSTRAP, b"s")
                return asyncio.create_task(BootstrapHandler(world.engine).get(request))

            task = world.run(start())
            world.turn()
            world.create(b"other")
            world.append(b"other")
            after = world.append(b"s", b"second")
            assert not task.done()
            gate.set()
            world.until(task.done)
            response = task.result()
            assert response.live is not None
            response.live.cancel()
            headers = dict(response.headers)
            assert headers[b"Stream-Next-Offset"] != after.tail.encoded()
            assert headers[b"Stream-Up-To-Date"] == b"false"


# -- decide and apply ------------------------------------------------------------------------------

_BODIES = st.sampled_from([b"1", b"[1,22,333]", b'{"a": 1}', b"[[],2]"])


def _appends(state: StreamState | None) -> st.SearchStrategy[Command]:
    type_ = TEXT if state is None else state.content_type
    return st.builds(
        Append, _BODIES, st.just(type_), st.sampled_from([False] * 9 + [True]), st.none(), st.none()
    )


@st.composite
def _publishes(draw: st.DrawFn, state: StreamState | None, ends: list[Offset]) -> Command:
    offset = draw(st.sampled_from([*ends, Offset(99, 999)]))
    stream_id = draw(st.sampled_from([1, 1, 1, 2]) if state is None else st.just(state.id))
    content = draw(st.sampled_from([b"", b"a", b"b"]))
    digest = hashlib.sha256(content).digest()
    snapshot_id = draw(st.integers(1000, 1005))
    snapshot = SnapshotInfo(offset, snapshot_id, len(content), BLOB, digest, True)
    return Publish(stream_id, snapshot, content)


@st.composite
def _histories(draw: st.DrawFn) -> list[tuple[Command, int]]:
    """Commands and their moments; offsets are mostly such as the stream has had."""
    commands: list[tuple[Command, int]] = []
    state: StreamState | None = None
    ends = [START]
    now, next_id = 1000, 1
    for _ in range(draw(st.integers(1, 25))):
        create = Create(id=next_id, content_type=draw(st.sampled_from([TEXT, JSON])), body=b"[1,2]")
        command = draw(
            st.one_of(
                st.just(create),
                _appends(state),
                _appends(state),
                _publishes(state, ends),
                _publishes(state, ends),
                st.sampled_from([Delete(), Touch()]),
            )
        )
        now += draw(st.integers(0, 5))
        commands.append((command, now))
        try:
            verdict = decide(state, command, now)
        except Refusal:
            continue
        if verdict.record is not None:
            state = apply(state, verdict.record)
            if type(command) is Create:
                next_id += 1
                ends = [START]
            if state is not None:
                ends.append(state.tail)
    return commands


@settings(max_examples=60, deadline=None)
@given(history=_histories(), checkpoints=st.sets(st.integers(0, 25)))
def test_replaying_the_records_gives_the_same_states(
    history: list[tuple[Command, int]], checkpoints: set[int]
) -> None:
    """
    Goal: a state is a fold of its records and of nothing else (rule 1 of the machine), snapshots
    among them, so that a restart, and any other node, comes to the same.

    Method: decide a random history, twice each, for it is pure; then fold the records again, with
    a checkpoint written and read back at random places.
    """
    records: list[Record] = []
    states: list[StreamState | None] = []
    state: StreamState | None = None
    for command, now in history:
        outcomes: list[object] = []
        for _ in range(2):
            try:
                outcomes.append(decide(state, command, now))
            except Refusal as refusal:
                outcomes.append((refusal.code, refusal.args))
        assert outcomes[0] == outcomes[1]
        record = getattr(outcomes[0], "record", None)
        if record is not None:
            before = state
            state = apply(before, record)
            assert apply(before, record) == state
            records.append(record)
            states.append(state)
            if state is not None and state.snapshot is not None:
                assert START <= state.earliest == state.snapshot.offset <= state.tail
    again: StreamState | None = None
    for at, record in enumerate(records):
        again = apply(again, record)
        if at in checkpoints and again is not None:
            again = decode_state(encode_state(b"k", again))
        assert again == states[at]
