"""`check`: it finds inconsistencies, reports them, and changes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rocksdict import Options, Rdict

from tailrace.engine.base import Due
from tailrace.engine.codec import decode_record, decode_state, encode_record
from tailrace.engine.rocks import RocksStore
from tailrace.engine.rocks.keys import ID, PAIR, items
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState
from tests.operations.building import check, no_damage, run
from tests.support.http import Connection
from tests.support.publishing import TEXT
from tests.support.server import ServerProcess

PRODUCED = b"\0produced/1"
GROWING = b"\0growing"
CHAT = b"rooms\0chat-1-3"
SNAPSHOT = b"rooms\0small-1"
LONG = b"rooms\0long-1"


def id_of(store: RocksStore, key: bytes) -> bytes:
    stored: bytes = store._names[key] or b""
    return stored


def state_of(store: RocksStore, key: bytes) -> StreamState:
    """The checkpoint, and not what follows from it."""
    stored: bytes = store._states[id_of(store, key)] or b""
    return decode_state(stored)


def records_of(store: RocksStore, key: bytes) -> list[tuple[bytes, bytes]]:
    stream_id = state_of(store, key).id
    return list(items(store._records, ID.pack(stream_id), ID.pack(stream_id + 1)))


def put_state(store: RocksStore, key: bytes, **changes: object) -> None:
    transaction = store.begin()
    transaction.checkpoint(key, replace(state_of(store, key), **changes))
    store.write(transaction)


def put_row(store: RocksStore, row: tuple[int, ...]) -> None:
    store._buckets[b"rooms"] = msgspec.msgpack.encode(row)


def remove_record(store: RocksStore) -> None:
    del store._records[records_of(store, GROWING)[10][0]]


def remove_first_record(store: RocksStore) -> None:
    del store._records[records_of(store, GROWING)[0][0]]


def remove_all_records(store: RocksStore) -> None:
    for key, _ in records_of(store, GROWING):
        del store._records[key]


def repeat_record(store: RocksStore) -> None:
    (_, first), (second, _), *_ = records_of(store, GROWING)
    store._records[second] = first


def shorten_record(store: RocksStore) -> None:
    key, value = records_of(store, GROWING)[5]
    store._records[key] = value[:-1]


def miscut_messages(store: RocksStore) -> None:
    for key, value in records_of(store, CHAT):
        at, record = decode_record(value)
        if len(record.lengths) > 1:
            first, second, *rest = record.lengths
            lengths = (first - 1, second + 1, *rest)
            store._records[key] = encode_record(at, replace(record, lengths=lengths))
            return
    raise AssertionError("no record with several messages")


def forget_name(store: RocksStore) -> None:
    del store._names[CHAT]


def name_twice(store: RocksStore) -> None:
    store._names[b"rooms\0another"] = id_of(store, CHAT)


def forget_state(store: RocksStore) -> None:
    del store._states[id_of(store, CHAT)]


def swap_names(store: RocksStore) -> None:
    store._names[CHAT], store._names[GROWING] = store._names[GROWING], store._names[CHAT]


def discard(store: RocksStore, stream_id: int, until: int | None = None) -> None:
    key = ID.pack(stream_id) if until is None else PAIR.pack(stream_id, until)
    store._garbage[key] = ID.pack(1)


def unschedule(store: RocksStore) -> None:
    state = state_of(store, LONG)
    deadline = state.deadline(sliding=False)
    assert deadline is not None
    transaction = store.begin()
    transaction.unschedule(Due(deadline, state.id, LONG))
    store.write(transaction)


def orphan_records(store: RocksStore) -> None:
    _, value = records_of(store, GROWING)[0]
    store._records[PAIR.pack(700, 0)] = value


def lose_snapshot(store: RocksStore) -> None:
    snapshot = state_of(store, SNAPSHOT).snapshot
    assert snapshot is not None
    del store._snapshots[ID.pack(snapshot.id)]


def change_snapshot(store: RocksStore) -> None:
    snapshot = state_of(store, SNAPSHOT).snapshot
    assert snapshot is not None
    store._snapshots[ID.pack(snapshot.id)] = bytes(snapshot.size)


Damage = Callable[[RocksStore], None]

DAMAGES: dict[str, tuple[Damage, str]] = {
    "a record is missing": (remove_record, "the next record is at"),
    "the first record is missing": (remove_first_record, "are missing"),
    "all records are missing": (remove_all_records, "all its records are missing"),
    "a record at the offset of another": (repeat_record, "not of its form"),
    "a record is shorter": (shorten_record, "the next record is at"),
    "messages are cut elsewhere": (miscut_messages, "do not end where they should"),
    "a Stream-Seq from nowhere": (
        lambda store: put_state(store, PRODUCED, stream_seq="0"), "what its records add up to",
    ),
    "a tail between records": (
        lambda store: put_state(store, CHAT, tail=Offset(1, 3)), "do not lead to its checkpoint",
    ),
    "closed without a record": (
        lambda store: put_state(store, PRODUCED, closed=True), "do not lead to its checkpoint",
    ),
    "a name is missing": (forget_name, "do not belong together"),
    "a stream has two names": (name_twice, "that of a stream of another name"),
    "a state is missing": (forget_state, "its checkpoint is missing"),
    "names are swapped": (swap_names, "do not belong together"),
    "a bucket counts wrongly": (lambda store: put_row(store, (1, 3, 77)), "its row has 3 of 77"),
    "a bucket is missing": (lambda store: store._buckets.delete(b"rooms"), "and is missing"),
    "a stream is garbage": (
        lambda store: discard(store, state_of(store, CHAT).id), "is in use, and listed as garbage",
    ),
    "a retained record is garbage": (
        lambda store: discard(store, state_of(store, CHAT).id, 9), "retains are listed as garbage",
    ),
    "it would never expire": (unschedule, "not in the expiry index"),
    "records without a stream": (orphan_records, "which does not exist"),
    "a snapshot is missing": (lose_snapshot, "its snapshot is missing"),
    "a snapshot is another": (change_snapshot, "not what was stored"),
    "ids would be used again": (
        lambda store: store._db.put(b"next_id", ID.pack(5)), "the next id is 5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_inconsistent_contents_are_found(copied: Path, name: str) -> None:
    """Every checksum fits: only the meaning is wrong."""
    damage, expected = DAMAGES[name]
    store = RocksStore(copied)
    damage(store)
    store.close()
    _, found = check(copied)
    assert any(expected in finding.problem for finding in found), [*map(str, found)]


def test_garbage_is_not_damage(copied: Path) -> None:
    store = RocksStore(copied)
    transaction = store.begin()
    transaction.delete(GROWING, state_of(store, GROWING))
    store.write(transaction)
    assert store.garbage(1000)
    store.close()
    no_damage(copied)


def fingerprint(directory: Path) -> dict[str, tuple[int, int, str]]:
    """Everything about every file."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_mtime_ns,
            path.stat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in directory.rglob("*")
    }


def test_nothing_is_changed(copied: Path) -> None:
    before = fingerprint(copied)
    for path in copied.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    copied.chmod(0o555)
    try:
        done = run("check", "--data-dir", copied)
    finally:
        copied.chmod(0o755)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b": no damage\n")
    after = fingerprint(copied)
    assert {name: entry[::2] for name, entry in after.items()} == {
        name: entry[::2] for name, entry in before.items()
    }


def test_a_directory_of_an_older_format_is_upgraded_first(tmp_path: Path) -> None:
    """Format 1 had no buckets and no snapshots."""
    options = Options(raw_mode=True)
    options.create_missing_column_families(True)
    families = dict.fromkeys(("records", "states", "names", "expiry", "garbage"), options)
    database = Rdict(str(tmp_path / "old"), options, families)
    database[b"format"] = b"1"
    database.close()
    del database
    done = run("check", "--data-dir", tmp_path / "old")
    assert done.returncode == 3
    assert b"start a server on it once" in done.stderr
    with ServerProcess(tmp_path / "old") as server:
        assert server.terminate() == 0
    no_damage(tmp_path / "old")


def test_a_log_that_rocksdb_would_read_for_ever_is_found(copied: Path) -> None:
    """A record of a kind that recycled logs have: see `repair`."""
    for path in (*copied.glob("*.log"), *copied.glob("MANIFEST-*")):
        data = path.read_bytes()
        if data:
            path.write_bytes(data[:6] + b"\x05" + data[7:])
            assert check(copied)[1]
            path.write_bytes(data)
    no_damage(copied)


def test_findings_say_where_they_are(copied: Path) -> None:
    store = RocksStore(copied)
    remove_record(store)
    put_row(store, (1, 3, 77))
    store.close()
    done = run("check", "--data-dir", copied)
    assert done.returncode == 1
    first, *_, summary = done.stdout.decode().splitlines()
    assert first.startswith("stream growing, byte ")
    assert summary.endswith(": 1 finding")
    done = run("check", "--data-dir", copied, "--json")
    assert done.returncode == 1
    finding, total = map(json.loads, done.stdout.splitlines())
    assert finding["stream"] == "growing"
    assert isinstance(finding["offset"], int)
    assert total["summary"]["findings"] == 1


def test_damage_that_rocksdb_finds_is_reported_with_its_file(copied: Path) -> None:
    table = max(copied.glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    data[1000] ^= 1
    table.write_bytes(data)
    _, found = check(copied)
    assert table.name in {finding.file for finding in found}, found
    assert not any("/" in finding.problem for finding in found), found


def test_check_refuses_the_directory_of_a_running_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with Connection.to(server.url) as connection:
            headers = {"Content-Type": TEXT}
            assert connection.request("PUT", "/v1/stream/a", headers, b"x").status == 201
        for command in ("check", "compact"):
            done = run(command, "--data-dir", server.data_dir)
            assert done.returncode == 4
            assert b"is in use by a running server" in done.stderr
            assert b"stop it first" in done.stderr
        server.terminate()
        assert run("check", "--data-dir", server.data_dir).returncode == 0


def test_a_directory_without_a_database_is_reported(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nothing"):
        for command in ("check", "compact"):
            done = run(command, "--data-dir", directory)
            assert done.returncode == 3, done.stderr
            assert b"is no data directory of tailrace" in done.stderr
    assert list(tmp_path.iterdir()) == []
