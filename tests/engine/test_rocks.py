"""RocksDB in particular: opening, formats, locks, and bounds that must hold."""

import random
import re
from pathlib import Path

import msgspec
import pytest

from tailrace.engine.base import Due
from tailrace.engine.errors import EngineError, StorageDamaged
from tailrace.engine.read import read_slice
from tailrace.engine.rocks import RocksStore
from tailrace.protocol.expiry import parse_expires_at
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import AppendRecord, StreamState
from tests.contract.harness import World


def new_state(stream_id: int) -> StreamState:
    return StreamState(
        id=stream_id, content_type="a/b", json=False, created_at=1, touched_at=1, written_at=1
    )


def write_format(directory: Path, version: bytes) -> None:
    store = RocksStore(directory)
    store._db[b"format"] = version
    store.sync()
    store.close()


class TestOpening:
    @pytest.mark.parametrize("version", [b"5", b"10", b"1.1", b"", b"\xff"])
    def test_an_unknown_format_is_refused_with_what_to_do(
        self, tmp_path: Path, version: bytes
    ) -> None:
        directory = tmp_path / "data"
        write_format(directory, version)
        with pytest.raises(EngineError) as caught:
            RocksStore(directory)
        message = str(caught.value)
        assert str(directory) in message
        assert version.decode(errors="replace") in message
        assert "format 4" in message
        assert "run the version that wrote it" in message

    def test_a_refused_format_is_left_as_it_was_and_not_locked(self, tmp_path: Path) -> None:
        """Another version can open it, also while the error is still being reported."""
        directory = tmp_path / "data"
        write_format(directory, b"5")
        with pytest.raises(EngineError, match="storage format 5") as first:
            RocksStore(directory)
        with pytest.raises(EngineError, match="storage format 5"):
            RocksStore(directory)
        assert first.value is not None

    def test_a_second_open_is_refused_and_names_the_directory(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = RocksStore(directory)
        with pytest.raises(EngineError, match="in use by another") as caught:
            RocksStore(directory)
        assert str(directory) in str(caught.value)
        store.close()

    def test_after_close_it_can_be_opened_again(self, tmp_path: Path) -> None:
        """`close` releases the directory, even if the closed object is still referenced."""
        directory = tmp_path / "data"
        store = RocksStore(directory)
        transaction = store.begin()
        store.close()
        again = RocksStore(directory)
        again.close()
        assert store is not again
        assert transaction is not None

    def test_after_an_engine_is_closed_it_can_be_opened_again(self, tmp_path: Path) -> None:
        """An application that is started twice in one process (a reload, a test client)."""
        directory = tmp_path / "data"
        with World("rocks", directory) as world:
            world.create(body=b"x")
            world.read()
        again = RocksStore(directory)
        assert again.load(b"s") is not None
        again.close()

    @pytest.mark.parametrize("name", ["data", "clock", "blocks", "LOCKED"])
    def test_only_a_lock_is_reported_as_a_lock(self, tmp_path: Path, name: str) -> None:
        """A path, or a word such as "block", that has the letters of "lock" in it is no lock."""
        path = tmp_path / name
        path.write_text("a file where a directory should be")
        with pytest.raises(EngineError) as caught:
            RocksStore(path)
        assert str(path) in str(caught.value)
        assert "in use" not in str(caught.value)

    def test_damage_is_reported_as_damage(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        RocksStore(directory).close()
        current = directory / "CURRENT"
        current.write_text("MANIFEST-999999\n")
        with pytest.raises(EngineError) as caught:
            RocksStore(directory)
        assert re.search(r"cannot be opened", str(caught.value))
        assert "in use" not in str(caught.value)

    def test_a_missing_directory_is_created(self, tmp_path: Path) -> None:
        directory = tmp_path / "a" / "b" / "c"
        RocksStore(directory).close()
        assert directory.is_dir()


class TestBounds:
    """
    Iterators end at their bounds.

    The library keeps the bound of an iterator in an object of its own: if that is collected
    first, the iterator runs on into other streams, or stops early and loses records.
    """

    STREAMS = 300

    @pytest.fixture
    def store(self, tmp_path: Path) -> RocksStore:
        store = RocksStore(tmp_path / "data")
        transaction = store.begin()
        for stream_id in range(1, self.STREAMS + 1):
            key = b"%d" % stream_id
            transaction.create(key, new_state(stream_id))
            for at in range(3):
                transaction.append(stream_id, Offset(at, at * 2), AppendRecord(stream_id, b"xy"))
            transaction.schedule(Due(stream_id * 10, stream_id, key))
        store.write(transaction)
        return store

    def churn(self) -> list[bytes]:
        """Allocations of the sizes that a freed bound had."""
        return [b"%c" % (at % 256) * (at % 40) for at in range(2000)]

    def test_a_load_sees_its_own_records_and_all_of_them(self, store: RocksStore) -> None:
        for stream_id in range(1, self.STREAMS + 1):
            junk = self.churn() if stream_id % 10 == 0 else []
            state = store.load(b"%d" % stream_id)
            assert state is not None
            assert (state.tail, state.written_at) == (Offset(3, 6), stream_id)
            del junk
        store.close()

    def test_a_long_replay_is_complete(self, store: RocksStore) -> None:
        """Each record is decoded, which allocates, while the iterator is under way."""
        transaction = store.begin()
        for at in range(3, 1000):
            transaction.append(7, Offset(at, at * 2), AppendRecord(at, b"xy"))
        store.write(transaction)
        for _ in range(10):
            state = store.load(b"7")
            assert state is not None
            assert state.tail == Offset(1000, 2000)
        store.close()

    def test_due_returns_the_entries_that_are_due(self, store: RocksStore) -> None:
        for now in range(0, self.STREAMS * 10, 70):
            assert [due.id for due in store.due(now, 10_000)] == list(range(1, now // 10 + 1))
        store.close()

    def test_a_scan_sees_its_own_records(self, store: RocksStore) -> None:
        for stream_id in range(1, self.STREAMS + 1):
            values = list(store.scan(stream_id, 0, 6))
            assert len(values) == 3
            values = list(store.scan(stream_id, 1, 4))
            assert len(values) == 2
        store.close()


def test_an_end_before_1970_does_not_break_the_batch(tmp_path: Path) -> None:
    """
    Goal: no accepted command fails half way, with a part of it in the batch.

    Method: a moment for which the expiry index has no room; the create must get a response.
    """
    past = parse_expires_at("1969-12-31T23:59:59Z")
    with World("rocks", tmp_path / "data") as world:
        state = world.create(b"past", expires_at=past, body=b"x")
        assert state.tail == Offset(1, 1)
        world.create(b"other")
        world.sweep()
        assert world.store.load(b"past") is None


def test_a_crash_without_sync_leaves_whole_batches_only(tmp_path: Path) -> None:
    """What was written and not synced may be there or not, but never in part."""
    source = tmp_path / "data"
    store = RocksStore(source)
    for at in range(5):
        transaction = store.begin()
        for stream_id in (2 * at + 1, 2 * at + 2):
            transaction.create(b"%d" % stream_id, new_state(stream_id))
            transaction.append(stream_id, Offset(0, 0), AppendRecord(1, b"x" * 1000))
        store.write(transaction)
    store.sync()
    logs = sorted(source.glob("*.log"))
    whole = logs[-1].read_bytes()
    for cut in range(0, len(whole), len(whole) // 15):
        copy = tmp_path / f"copy{cut}"
        copy.mkdir()
        for path in source.iterdir():
            if path.is_file() and path.name != "LOCK":
                data = path.read_bytes()
                (copy / path.name).write_bytes(data[:cut] if path == logs[-1] else data)
        crashed = RocksStore(copy)
        there = [crashed.load(b"%d" % stream_id) for stream_id in range(1, 11)]
        found = [state is not None for state in there]
        assert found[0::2] == found[1::2]
        assert found == sorted(found, reverse=True)
        assert all(state.tail == Offset(1, 1000) for state in there if state is not None)
        crashed.close()
    store.close()


def test_a_block_that_cannot_be_read_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    """
    Goal: damage never makes a stream shorter, or the next append would overwrite what is there.

    Method: flush records to a table, flip bytes in the middle of it, and load and read again.
    """
    directory = tmp_path / "data"
    store = RocksStore(directory)
    transaction = store.begin()
    transaction.create(b"k", new_state(1))
    noise = random.Random(1)
    for at in range(120):
        record = AppendRecord(1, noise.randbytes(1000))
        transaction.append(1, Offset(at, at * 1000), record)
    store.write(transaction)
    store.compact((1, 0), (2, 0))
    store.close()
    table = max(directory.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    for position in range(len(content) // 2, len(content) // 2 + 10):
        content[position] ^= 0xFF
    table.write_bytes(content)
    damaged = RocksStore(directory)
    with pytest.raises(Exception, match="Corruption"):
        damaged.load(b"k")
    with pytest.raises(Exception, match="Corruption"):
        list(damaged.scan(1, 0, 120_000))
    damaged.close()


def test_records_that_are_missing_are_an_error_and_not_the_end(tmp_path: Path) -> None:
    """A hole in a stream is damage, and not a wrong offset of the client."""
    store = RocksStore(tmp_path / "data")
    transaction = store.begin()
    transaction.append(1, Offset(0, 0), AppendRecord(1, b"xy"))
    store.write(transaction)
    state = msgspec.structs.replace(new_state(1), tail=Offset(3, 6))
    with pytest.raises(StorageDamaged):
        read_slice(store, state, Offset(0, 0), 1 << 20)
    store.close()
