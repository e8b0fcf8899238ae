"""`check` finds wrong references, missing ancestors, and what is kept for nobody; and restores."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tailrace.engine.base import Garbage
from tailrace.engine.codec import decode_state
from tailrace.engine.forks import HELD, QUEUED, held_key
from tailrace.engine.rocks import RocksStore
from tailrace.engine.rocks.keys import ID, PAIR, items
from tailrace.protocol.state import StreamState
from tests.operations.building import check, no_damage, run
from tests.support.http import Connection
from tests.support.publishing import TEXT, offset
from tests.support.server import ServerProcess

SOURCE, MIDDLE, FORK = b"rooms\0source", b"rooms\0middle", b"rooms\0fork"


def build(url: str) -> None:
    """A soft-deleted source, whose snapshot moved on; a fork; and a fork of that."""
    with Connection.to(url) as connection:

        def send(method: str, path: str, body: bytes = b"", **headers: str) -> None:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            response = connection.request(method, path, sent, body)
            assert response.status < 300, (path, response.status, response.body)

        send("PUT", "/rooms")
        send("PUT", "/rooms/source", b"abc", Content_Type=TEXT)
        send("POST", "/rooms/source", b"de", Content_Type=TEXT)
        send("PUT", f"/rooms/source/snapshot/{offset(1, 3)}", b"first")
        send("PUT", "/rooms/middle", b"fg", Stream_Forked_From="/rooms/source")
        send("PUT", "/rooms/fork", b"h", Stream_Forked_From="/rooms/middle")
        send("PUT", f"/rooms/source/snapshot/{offset(2, 5)}", b"second")
        send("DELETE", "/rooms/source")
        send("PUT", "/rooms/unrelated", b"x", Content_Type=TEXT)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("forked") / "data"
    with ServerProcess(directory) as server:
        build(server.url)
        server.kill()
    no_damage(directory)
    return directory


@pytest.fixture
def directory(forked: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(forked, tmp_path / "data"))


def state_of(store: RocksStore, key: bytes) -> StreamState:
    stored: bytes = store._states[store._names[key] or b""] or b""
    return decode_state(stored)


def put_state(store: RocksStore, key: bytes, **changes: object) -> None:
    transaction = store.begin()
    transaction.checkpoint(key, replace(state_of(store, key), **changes))
    store.write(transaction)


def lose_source(store: RocksStore) -> None:
    transaction = store.begin()
    transaction.delete(SOURCE, state_of(store, SOURCE))
    store.write(transaction)


def trim(store: RocksStore) -> None:
    """What the snapshots cover became garbage, although forks inherit it."""
    number = state_of(store, SOURCE).id
    store._records.delete(PAIR.pack(number, 3))
    store._records.delete(PAIR.pack(number, 0))


def lose_held_snapshot(store: RocksStore) -> None:
    snapshot = state_of(store, FORK).snapshot
    assert snapshot is not None
    store._snapshots.delete(ID.pack(snapshot.id))


def discard_inherited(store: RocksStore) -> None:
    transaction = store.begin()
    transaction.discard(Garbage(state_of(store, SOURCE).id, 5, until=5))
    store.write(transaction)


def hold_for_nobody(store: RocksStore) -> None:
    transaction = store.begin()
    value = msgspec.msgpack.encode(tuple(Garbage(1, 7, until=7)))
    transaction.put_held(held_key(HELD, state_of(store, FORK).id, 3), value)
    store.write(transaction)


def forget_held(store: RocksStore) -> None:
    for key, _ in list(items(store.families["held"], HELD, QUEUED)):
        store.families["held"].delete(key)


def end_fork(store: RocksStore) -> None:
    """Its fork point is elsewhere than its records."""
    origin = state_of(store, FORK).fork
    assert origin is not None
    put_state(store, FORK, fork=replace(origin, point=state_of(store, SOURCE).tail))


FAULTS: dict[str, tuple[Callable[[RocksStore], None], str]] = {
    "a reference too many": (
        lambda store: put_state(store, MIDDLE, forks=2), "it has 1 forks, and 2 references",
    ),
    "a reference too few": (
        lambda store: put_state(store, MIDDLE, forks=0), "1 forks, and no references",
    ),
    "a reference of no fork": (
        lambda store: put_state(store, FORK, forks=1), "it has 0 forks, and 1 references",
    ),
    "the source is missing": (lose_source, "its source rooms/source is missing"),
    "an ancestor is missing": (lose_source, "what it inherits from stream"),
    "inherited records are missing": (trim, "is missing"),
    "an inherited snapshot is missing": (lose_held_snapshot, "its snapshot is missing"),
    "inherited records are garbage": (discard_inherited, "listed as garbage"),
    "deleted for ever": (
        lambda store: put_state(store, FORK, deleted=True), "would never be removed",
    ),
    "kept for nobody": (hold_for_nobody, "is kept for forks, and it has none"),
    "what is kept is forgotten": (forget_held, "for its forks, and counts"),
    "another fork point": (end_fork, "are missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(directory: Path, name: str) -> None:
    plant, expected = FAULTS[name]
    store = RocksStore(directory)
    plant(store)
    store.close()
    _, found = check(directory)
    assert any(expected in finding.problem for finding in found), [*map(str, found)]


def test_forks_survive_backup_and_restore(tmp_path: Path) -> None:
    """References and what is kept are part of a backup; the source goes with its last fork."""
    with ServerProcess(tmp_path / "data") as server:
        build(server.url)
        saved = run("backup", tmp_path / "saved.tar", "--url", server.url)
        assert saved.returncode == 0, saved.stderr
    done = run("restore", tmp_path / "saved.tar", "--data-dir", tmp_path / "restored")
    assert done.returncode == 0, done.stderr
    no_damage(tmp_path / "restored")
    with ServerProcess(tmp_path / "restored") as server, Connection.to(server.url) as connection:
        assert connection.request("HEAD", "/rooms/source").status == 410
        read = connection.request("GET", f"/rooms/fork?offset={offset(1, 3)}")
        assert read.body == b"defgh"
        for path in ("/rooms/middle", "/rooms/fork"):
            assert connection.request("DELETE", path).status == 204
        for path in ("/rooms/middle", "/rooms/fork", "/rooms/source"):
            assert connection.request("HEAD", path).status == 404
        server.terminate()
    no_damage(tmp_path / "restored")


def test_a_fork_whose_source_is_missing_can_still_be_deleted(directory: Path) -> None:
    store = RocksStore(directory)
    lose_source(store)
    store.close()
    with ServerProcess(directory) as server, Connection.to(server.url) as connection:
        for path in ("/rooms/middle", "/rooms/fork"):
            assert connection.request("DELETE", path).status == 204
        assert connection.request("HEAD", "/rooms/middle").status == 404
