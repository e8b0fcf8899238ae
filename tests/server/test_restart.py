"""§4: acknowledged data survives a crash, on every stream and not only on the last one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.conftest import KINDS
from tests.support.streams import Api


@pytest.mark.parametrize("kind", ["wire-rocksdb", "asgi-rocksdb"])
def test_every_stream_is_unchanged_after_a_crash(kind: str, tmp_path: Path) -> None:
    """Streams of many kinds, written alternately, then SIGKILL: all metadata and content stay."""
    with KINDS[kind](tmp_path, "--chunk-bytes", "1000") as server:
        api = Api(server)
        plain = [api.create() for _ in range(5)]
        jsons = [api.create("application/json") for _ in range(3)]
        for turn in range(6):
            for number, path in enumerate(plain[: 5 - turn]):
                api.append(path, b"%d-%d;" % (number, turn))
            for path in jsons:
                api.append(path, b'[%d,"x"]' % turn, content_type="application/json")
        # Enough records for a checkpoint, and some after it.
        for turn in range(150):
            api.append(plain[0], b"%d" % turn)
        api.close_stream(plain[1])
        api.append(plain[2], b"last", {"Stream-Closed": "true"})
        paths = [*plain, *jsons]
        paths.append(api.create(body=b"once", headers={"Stream-Closed": "true"}))
        paths.append(api.create(headers={"Stream-Expires-At": "2099-01-01T00:00:00Z"}))
        deleted = api.create(body=b"gone")
        assert api.request("DELETE", deleted).status == 204
        before = {path: api.facts(path) for path in paths}
        for _ in range(2):
            server.restart()
            api.close()
            assert {path: api.facts(path) for path in paths} == before
            assert api.head(deleted).status == 404
        for path in (plain[0], plain[3]):
            content = api.read_all(path)
            api.append(path, b"more")
            assert api.read_all(path) == content + b"more"
        before = {path: api.facts(path) for path in paths}
        api.close()
        if kind == "wire-rocksdb":
            assert server.terminate() == 0
            server.start()
        else:
            server.restart()
        assert {path: api.facts(path) for path in paths} == before
        api.close()


def test_offsets_from_before_a_restart_still_work(tmp_path: Path) -> None:
    """§6: offsets are persistent: a read from each returns the same content."""
    with KINDS["wire-rocksdb"](tmp_path) as server:
        api = Api(server)
        path, neighbour = api.create("application/json"), api.create("application/json")
        offsets = []
        for turn in range(5):
            offsets.append(
                api.append(path, b"[%d,%d]" % (turn, turn), content_type="application/json")
            )
            api.append(neighbour, b"[9]", content_type="application/json")
        before = [api.get(path, f"offset={offset}").body for offset in offsets]
        server.restart()
        api.close()
        assert [api.get(path, f"offset={offset}").body for offset in offsets] == before
        api.close()


def test_the_memory_engine_stores_nothing(tmp_path: Path) -> None:
    """With `--engine memory` data ends with the process, and nothing is written to disk."""
    with KINDS["wire-memory"](tmp_path / "never") as server:
        api = Api(server)
        path = api.create(body=b"x")
        server.restart()
        api.close()
        assert api.head(path).status == 404
        api.close()
    assert not (tmp_path / "never").exists()
