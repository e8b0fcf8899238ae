"""`compact`: what is no longer needed goes, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rocksdict import Rdict

from tailrace.engine.rocks import RocksStore
from tailrace.engine.rocks.options import FAMILIES
from tests.operations.building import BLOB_BYTES, no_damage, run
from tests.support.chance import derive
from tests.support.http import Connection
from tests.support.publishing import OCTETS
from tests.support.server import ServerProcess

HEADERS = {"Content-Type": OCTETS}


def test_compact_frees_deleted_data_and_keeps_the_rest(tmp_path: Path) -> None:
    """Of large values half of each blob file goes, which a server would leave as it is."""
    chance = derive(6, "compact")
    kept = {}
    with ServerProcess(tmp_path / "data") as server, Connection.to(server.url) as connection:
        assert connection.request("PUT", "/rooms").status == 201
        for number in range(20):
            path, body = f"/rooms/stream-{number}", chance.randbytes(BLOB_BYTES)
            assert connection.request("PUT", path, HEADERS, body).status == 201
            kept[path] = body
        where = f"/rooms/stream-0/snapshot/{1:016d}_{BLOB_BYTES:016d}"
        assert connection.request("PUT", where, HEADERS, bytes(1 << 20)).status == 204
        # Memtables become tables, so that there is something to compact.
        assert connection.request("POST", "/-/backup").status == 200
        for path in list(kept)[::2]:
            assert connection.request("DELETE", path).status == 204
            del kept[path]
        server.kill()
        done = run("compact", "--data-dir", server.data_dir, "--json")
        assert done.returncode == 0, done.stderr
        sizes = json.loads(done.stdout)
        assert sizes["bytes_after"] < 11 * BLOB_BYTES < 20 * BLOB_BYTES < sizes["bytes_before"]
        assert not any((server.data_dir / "snapshots").iterdir())
        assert no_damage(server.data_dir).streams == len(kept)
        server.start()
        with Connection.to(server.url) as again:
            found = {path: again.request("GET", f"{path}?offset=-1").body for path in kept}
        assert found == kept


def test_all_states_of_streams_survive(copied: Path) -> None:
    before = no_damage(copied)
    done = run("compact", "--data-dir", copied)
    assert done.returncode == 0, done.stderr
    assert b" before, " in done.stdout
    assert no_damage(copied).streams == before.streams
    store = RocksStore(copied)
    assert store.garbage(10) == []
    store.close()


@pytest.mark.parametrize("kind", ["MANIFEST-*", "CURRENT"])
def test_a_damaged_directory_is_not_compacted(copied: Path, kind: str) -> None:
    """Not even if RocksDB would read it for ever."""
    (path,) = copied.glob(kind)
    data = path.read_bytes()
    path.write_bytes(data[:6] + b"\x05" + data[7:])
    done = run("compact", "--data-dir", copied)
    assert done.returncode == 1
    assert b"cannot be opened" in done.stderr


def test_a_damaged_table_is_reported_in_one_line_and_the_directory_unlocked(copied: Path) -> None:
    """RocksDB opens it, fails to compact it, and fails to close it for the same reason."""
    table = max(copied.glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    data[1000] ^= 1
    table.write_bytes(data)
    done = run("compact", "--data-dir", copied)
    assert done.returncode == 1
    first, hint = done.stderr.decode().splitlines()
    assert first.startswith(f"tailrace: {copied} cannot be compacted: Corruption")
    assert "tailrace check" in hint


def test_a_store_is_closed_even_if_a_family_fails_to_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksStore(tmp_path)
    closed = []

    def fail(family: Rdict) -> Exception:
        family.close()
        closed.append(family)
        return OSError(f"failure {len(closed)}")

    monkeypatch.setattr("tailrace.engine.rocks.store._close", fail)
    with pytest.raises(OSError, match="failure 1"):
        store.close()
    assert len(closed) == len(FAMILIES) + 1
    closed.clear()
    monkeypatch.undo()
    RocksStore(tmp_path).close()
