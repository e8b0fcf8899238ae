"""
Decision 22: an ETag names content, for ever.

Internal ids and offsets start again in a new store, and a restored backup can go another way. The
store id in the ETag tells them apart.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

from tailrace.engine.memory import MemoryStore
from tailrace.engine.restore import RESTORED, restore
from tailrace.engine.rocks.store import FORMAT_VERSION, RocksStore
from tests.support.http import Connection
from tests.support.server import ServerProcess

TEXT = {"Content-Type": "text/plain"}
END = f"{1:016d}_{3:016d}"


def write(server: ServerProcess, body: bytes) -> list[str]:
    """Create a stream and a snapshot, always with the same names; returns their ETags."""
    with Connection.to(server.url) as connection:
        assert connection.request("PUT", "/rooms").status in (201, 409)
        assert connection.request("PUT", "/rooms/one", TEXT, body).status == 201
        response = connection.request("PUT", f"/rooms/one/snapshot/{END}", TEXT, body)
        assert response.status == 204
        assert connection.request("PUT", "/v1/stream/base", TEXT, body).status == 201
        paths = ("/v1/stream/base", "/rooms/one?offset=" + END, f"/rooms/one/snapshot/{END}")
        return [connection.request("GET", path).headers["etag"] for path in paths]


def statuses(server: ServerProcess, etags: list[str]) -> list[int]:
    paths = ("/v1/stream/base", "/rooms/one?offset=" + END, f"/rooms/one/snapshot/{END}")
    with Connection.to(server.url) as connection:
        return [
            connection.request("GET", path, {"If-None-Match": etag}).status
            for path, etag in zip(paths, etags, strict=True)
        ]


def test_an_etag_is_valid_after_a_restart_with_the_same_directory(tmp_path: Path) -> None:
    """Also after SIGKILL: what is stored is the same."""
    with ServerProcess(tmp_path) as server:
        etags = write(server, b"abc")
        assert statuses(server, etags) == [304, 304, 304]
        server.kill()
        server.start()
        assert statuses(server, etags) == [304, 304, 304]


def test_an_old_etag_does_not_match_after_a_restart_of_the_memory_engine(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--engine", "memory") as server:
        etags = write(server, b"abc")
        server.stop()
        server.start()
        assert not set(write(server, b"xyz")) & set(etags)
        assert statuses(server, etags) == [200, 200, 200]


def test_an_old_etag_does_not_match_after_the_directory_was_wiped(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        etags = write(server, b"abc")
        server.stop()
        shutil.rmtree(tmp_path / "data")
        server.start()
        assert not set(write(server, b"xyz")) & set(etags)
        assert statuses(server, etags) == [200, 200, 200]


def test_an_old_etag_does_not_match_after_a_restore(tmp_path: Path) -> None:
    """The backup is of the time before; the restored server goes another way from there."""
    with ServerProcess(tmp_path / "data") as server:
        with Connection.to(server.url) as connection:
            backup = connection.request("POST", "/-/backup").body
        etags = write(server, b"abc")
    restore(io.BytesIO(backup), tmp_path / "new", FORMAT_VERSION, lambda _: lambda _: None)
    with ServerProcess(tmp_path / "new") as server:
        others = write(server, b"xyz")
        assert not set(others) & set(etags)
        assert statuses(server, etags) == [200, 200, 200]
        # From now on it is a store like any other.
        server.kill()
        server.start()
        assert statuses(server, others) == [304, 304, 304]


# -- the id ----------------------------------------------------------------------------------------


def opened(directory: Path) -> str:
    store = RocksStore(directory)
    try:
        return store.store_id
    finally:
        store.close()


def test_a_store_id_is_short_and_random(tmp_path: Path) -> None:
    ids = [MemoryStore().store_id, MemoryStore().store_id, opened(tmp_path / "a")]
    ids.append(opened(tmp_path / "b"))
    assert len(set(ids)) == 4
    assert all(len(item) == 8 and '"' not in item for item in ids)
    assert opened(tmp_path / "a") == ids[2]


def test_a_store_without_an_id_gets_one(tmp_path: Path) -> None:
    """As written by earlier versions."""
    store = RocksStore(tmp_path)
    before = store.store_id
    del store._db[b"store_id"]
    store.close()
    after = opened(tmp_path)
    assert after != before
    assert opened(tmp_path) == after


def test_a_restored_store_has_a_new_id_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the mark cannot be removed, each start makes a new id."""
    before = opened(tmp_path)
    (tmp_path / RESTORED).touch()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", _fail)
        between = opened(tmp_path)
    after = opened(tmp_path)
    assert len({before, between, after}) == 3
    assert not (tmp_path / RESTORED).exists()
    assert opened(tmp_path) == after


def _fail(*_args: object, **_named: object) -> None:
    raise OSError("the disk fails")


def test_a_store_whose_log_was_cut_has_a_new_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that readers have seen may be lost, and be written otherwise now."""
    before = opened(tmp_path)
    monkeypatch.setattr("tailrace.engine.rocks.store.repair_logs", lambda _: 7)
    assert opened(tmp_path) != before


def test_a_restore_leaves_its_mark_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark is in place before the directory is a database."""
    with ServerProcess(tmp_path / "data") as server, Connection.to(server.url) as connection:
        backup = connection.request("POST", "/-/backup").body
    (tmp_path / "new").mkdir()
    seen: list[bool] = []
    rename = Path.rename

    def renamed(self: Path, target: Path) -> Path:
        if Path(target).name == "CURRENT":
            seen.append((tmp_path / "new" / RESTORED).exists())
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)
    restore(io.BytesIO(backup), tmp_path / "new", FORMAT_VERSION, lambda _: lambda _: None)
    assert seen == [True]
