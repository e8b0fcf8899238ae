"""
A directory of format 2, whose buckets did not know their bytes, is counted once when it is opened.

Its stored form is that of format 4 but for the rows of buckets and the number itself, so that is
what these tests write back into one.
"""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tailrace.engine.engine import Outcome
from tailrace.engine.errors import EngineError
from tailrace.engine.rocks import RocksStore, upgrade
from tailrace.engine.rocks.upgrade import UNCOUNTED
from tailrace.protocol.bucket import BucketState, stream_bytes
from tailrace.protocol.state import Publish, SnapshotInfo
from tests.contract.harness import START_MS, World

TEXT = "text/plain"
Filled = Callable[[Path], dict[bytes, BucketState]]
BUCKETS = [b"bkt%d" % number for number in range(7)]


def fill(directory: Path) -> dict[bytes, BucketState]:
    """Buckets with streams of every kind; returns what each of them is."""
    with World("rocks", directory) as world:
        replies: list[Outcome] = []

        async def create() -> None:
            for bucket in BUCKETS:
                world.engine.buckets.create(bucket, replies.append)

        world.run(create())
        world.until(lambda: len(replies) == len(BUCKETS))
        for at, bucket in enumerate(BUCKETS[1:], start=1):
            for number in range(3 * at):
                key = bucket + b"\0s%d" % number
                world.create(key, body=b"first", closed=number % 5 == 4)
                if number % 5 == 4:
                    continue
                for size in range(1, number % 4 + 1):
                    state = world.append(key, b"x" * size * 10)
                    if size == 2:
                        content = b"s" * 17
                        snapshot = SnapshotInfo(
                            state.tail, world.engine.take_id(), 17, TEXT, b"", True
                        )
                        world.do(key, Publish(state.id, snapshot, content))
            world.delete(bucket + b"\0s0")
        return {bucket: world.engine.buckets.find(bucket) for bucket in BUCKETS}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """Makes a directory with something in it, again and again the same."""
    original = tmp_path_factory.mktemp("filled") / "data"
    expected = fill(original)

    def copy(directory: Path) -> dict[bytes, BucketState]:
        shutil.copytree(original, directory)
        return dict(expected)

    return copy


def age(directory: Path, *, counting: bool = False) -> None:
    """Make format 2 of it, or of the first half of its buckets while it is being upgraded."""
    store = RocksStore(directory)
    for bucket in BUCKETS[: 3 if counting else None]:
        row = msgspec.msgpack.encode(store.bucket_row(bucket)[:2])
        store._buckets[bucket] = row
    if counting:
        # Wrong ones, as if they had been counted before something else went on.
        store._buckets[BUCKETS[5]] = msgspec.msgpack.encode((START_MS, 14, 12345))
        store._db[UNCOUNTED] = b""
    else:
        store._db[b"format"] = b"2"
    store.sync()
    store.close()


def buckets_of(directory: Path) -> dict[bytes, BucketState | None]:
    store = RocksStore(directory)
    try:
        assert store._db.get(b"format") == b"4"
        assert UNCOUNTED not in store._db
        return {bucket: store.bucket(bucket) for bucket in BUCKETS}
    finally:
        store.close()


def test_buckets_of_format_2_are_counted(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few names at a time."""
    monkeypatch.setattr(upgrade, "STEP", 2)
    expected = filled(tmp_path / "data")
    assert sum(state.bytes for state in expected.values()) > 1000
    age(tmp_path / "data")
    assert buckets_of(tmp_path / "data") == expected
    with World("rocks", tmp_path / "data") as world:
        for bucket in BUCKETS:
            names = world.store.names(bucket + b"\0", b"", 1000)
            states = [world.store.load(name) for name in names]
            size = sum(stream_bytes(state) for state in states if state is not None)
            assert size == expected[bucket].bytes
            for name in names:
                world.delete(name)
            assert world.engine.buckets.find(bucket) == BucketState(START_MS)


def test_a_crash_while_counting_is_counted_again(filled: Filled, tmp_path: Path) -> None:
    expected = filled(tmp_path / "data")
    age(tmp_path / "data", counting=True)
    assert buckets_of(tmp_path / "data") == expected


def test_bytes_are_counted_once(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = filled(tmp_path / "data")
    age(tmp_path / "data")
    assert buckets_of(tmp_path / "data") == expected

    def again(_store: RocksStore) -> None:
        raise AssertionError("counted again")

    monkeypatch.setattr("tailrace.engine.rocks.store.count_bytes", again)
    assert buckets_of(tmp_path / "data") == expected


def test_an_older_version_refuses_it_from_the_first_write_on(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The format is raised before any row changes; a failure is reported, and retried later."""
    expected = filled(tmp_path / "data")
    age(tmp_path / "data")

    def fail(store: RocksStore) -> None:
        assert store._db.get(b"format") == b"4"
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("tailrace.engine.rocks.store.count_bytes", fail)
        with pytest.raises(EngineError, match="cannot be upgraded: the disk is gone"):
            RocksStore(tmp_path / "data")
    assert buckets_of(tmp_path / "data") == expected


DAMAGES = {
    "RocksDB": Exception("Corruption: block checksum mismatch"),
    "a record": ValueError("record version 77 is not known"),
    "a head": struct.error("unpack_from requires a buffer of at least 28 bytes"),
    "a checkpoint": msgspec.DecodeError("trailing characters"),
    "no checkpoint": AssertionError("a name without a state"),
}


def fail_to_load(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    load = RocksStore.load

    def broken(self: RocksStore, key: bytes) -> object:
        if key == BUCKETS[2] + b"\0s1":
            raise error
        return load(self, key)

    monkeypatch.setattr(RocksStore, "load", broken)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_stream_that_is_damaged_is_left_out(
    filled: Filled,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    damage: str,
) -> None:
    """A server that ran before with one must not fail to start now."""
    expected = filled(tmp_path / "data")
    age(tmp_path / "data")
    fail_to_load(monkeypatch, DAMAGES[damage])
    found = buckets_of(tmp_path / "data")
    assert found.pop(BUCKETS[2]) != expected.pop(BUCKETS[2])
    assert found == expected
    assert "cannot be read" in "".join(capfd.readouterr())


@pytest.mark.parametrize("error", [Exception("IO error: too many open files"), MemoryError()])
def test_a_temporary_error_is_counted_at_the_next_start(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    expected = filled(tmp_path / "data")
    age(tmp_path / "data")
    with monkeypatch.context() as patch:
        fail_to_load(patch, error)
        with pytest.raises(EngineError, match="cannot be upgraded"):
            RocksStore(tmp_path / "data")
    assert buckets_of(tmp_path / "data") == expected
