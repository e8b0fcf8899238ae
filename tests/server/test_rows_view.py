"""What a response of rows retains while it is sent, on every store and without a socket."""

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tailrace.protocol.state import Publish, SnapshotInfo
from tailrace.server.errors import ArrowMissing
from tailrace.server.guard.access import Access
from tailrace.server.handlers.bulk import rows
from tailrace.server.message import Frame, Request
from tests.contract.harness import KINDS, World
from tests.server.access.samples import AccessToml, bearer
from tests.support.looping import for_each

KEY = b"\0s"
MESSAGE = b"x" * (1 << 20)
COUNT = 8


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """An engine with a stream of several batches."""
    with World(request.param, tmp_path / "data") as world:
        world.create(KEY)
        for number in range(COUNT):
            world.append(KEY, b"%d" % number + MESSAGE)
        yield world


class Peer:
    """A sink that takes data only when the test calls `drain`."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.blocked = True
        self.finished = self.aborted = False

    def write_frame(self, frame: Frame) -> None:
        self.pieces.append(bytes(frame.data))

    def finish(self) -> None:
        self.finished = True

    def abort(self) -> None:
        self.aborted = True


def start(
    world: World, *ranges: dict[str, str], access: Access | None = None, token: str = ""
) -> tuple[Any, Peer]:
    """A response whose first piece has been written."""
    request = Request("POST", b"/-/rows", b"", {}, msgspec.json.encode({"ranges": ranges}))
    peer = Peer()
    if access is not None:
        request.headers = bearer(token)
        request.principal = access.identify(request)

    async def begin() -> Any:
        response = await rows.RowsHandler(world.engine, access).read(request)
        assert response.live is not None
        response.live.start(peer)
        return response.live

    return world.run(begin()), peer


def drain(world: World, live: Any, peer: Peer, count: int = sys.maxsize) -> None:
    """Let the peer read this many further pieces."""

    async def read() -> None:
        async with asyncio.timeout(20):
            wanted = len(peer.pieces) + count
            while len(peer.pieces) < wanted and not peer.finished:
                live.drained()
                await asyncio.sleep(0)

    world.run(read())


def values(peer: Peer) -> list[bytes]:
    found = pa.ipc.open_stream(b"".join(peer.pieces)).read_all()
    assert found.column("status").to_pylist()[-1] == "end"
    return [value for value in found.column("value").to_pylist() if value is not None]


def records(world: World, stream_id: int) -> int:
    return len(list(world.store.scan(stream_id, 0, 1 << 60)))


EXPECTED = [b"%d" % number + MESSAGE for number in range(COUNT)]


def test_a_stream_that_is_deleted_meanwhile_is_read_to_its_end(world: World) -> None:
    """And its records are removed afterwards."""
    stream_id = world.find(KEY).id
    live, peer = start(world, {"path": "s"})
    drain(world, live, peer, 2)
    world.delete(KEY)
    world.sweep()
    assert records(world, stream_id) == COUNT
    drain(world, live, peer)
    assert peer.finished and values(peer) == EXPECTED
    world.sweep()
    assert records(world, stream_id) == 0


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_slow_reader_stops_when_its_access_is_revoked(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Neither the current range nor later ones are continued."""
    toml = AccessToml(tmp_path / "access.toml")
    token = toml.token("read:/v1/stream", expires="2999-01-01T00:00:00Z")
    access = toml.load()
    ranges = [{"path": "s"}, {"path": "s"}, {"path": "later"}]
    live, peer = start(world, *ranges, access=access, token=token)
    drain(world, live, peer, 3)
    world.create(b"\0later", body=b"WRITTEN LATER")
    if how == "revoked":
        toml.remove(token)
        access.reload()
    else:
        monkeypatch.setattr("tailrace.server.guard.access.access._now_ms", lambda: 1 << 50)
    drain(world, live, peer)
    assert peer.finished
    found = pa.ipc.open_stream(b"".join(peer.pieces)).read_all().to_pylist()
    read = [row["value"] for row in found if row["status"] is None]
    assert 0 < len(read) < COUNT and read == EXPECTED[: len(read)]
    ends = [(row["range"], row["status"]) for row in found if row["status"] is not None]
    assert ends == [(at, "credentials-refused") for at in range(3)]
    detail = json.loads(found[-1]["detail"])
    assert detail["status"] == 401 and "no longer valid" in detail["detail"]


def test_a_snapshot_does_not_affect_a_range_that_is_being_read(world: World) -> None:
    state = world.find(KEY)
    live, peer = start(world, {"path": "s"})
    drain(world, live, peer, 2)
    snapshot = SnapshotInfo(
        state.tail, world.engine.take_id(), 1, "a/b", hashlib.sha256(b"x").digest(), True
    )
    world.state(KEY, Publish(state.id, snapshot, b"x"))
    world.append(KEY, b"later")
    world.sweep()
    drain(world, live, peer)
    assert peer.finished and values(peer) == EXPECTED


def test_a_range_is_read_as_of_its_own_start(world: World) -> None:
    """Later ranges retain nothing, and include messages appended meanwhile."""
    world.create(b"\0later")
    live, peer = start(world, {"path": "s"}, {"path": "later"})
    drain(world, live, peer, 2)
    world.append(b"\0later", b"new")
    assert len(world.engine.pins._held) == 1
    drain(world, live, peer)
    assert values(peer) == [*EXPECTED, b"new"]
    assert not world.engine.pins._held


@for_each("pieces", [0, 1, 2, 3])
def test_a_disconnected_peer_retains_nothing(world: World, pieces: int) -> None:
    live, peer = start(world, {"path": "s"})
    drain(world, live, peer, pieces)
    live.cancel()
    world.turn()
    assert not world.engine.pins._held
    assert not peer.finished and not peer.aborted


def test_a_response_does_not_block_the_event_loop(world: World) -> None:
    """Even if the peer reads at once, the loop runs other tasks between two batches."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def read() -> int:
        counting = asyncio.create_task(count())
        requested = rows._decode(msgspec.json.encode({"ranges": [{"path": "s"}]}))
        batches = rows._import_batches()(rows._columns(requested.columns))
        body = rows._Body(world.engine, requested, batches, None)
        found = 0
        source: AsyncIterator[bytes | memoryview] = body.pieces()
        async for _ in source:
            found += 1
        counting.cancel()
        return found

    pieces = world.run(read())
    assert turns >= pieces - 3 >= COUNT - 1


def test_reading_rows_restarts_a_sliding_ttl(tmp_path: Path) -> None:
    with World("memory", tmp_path, sliding=True) as world:
        world.create(KEY, ttl_s=10)
        world.now += 9_000
        drain(world, *start(world, {"path": "s"}))
        world.now += 9_000
        assert world.find(KEY).touched_at == world.now - 9_000


def test_without_arrow_the_error_names_the_package_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tailrace.server.handlers.bulk.arrow", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    request = Request("POST", b"/-/rows", b"", {}, b'{"ranges":[]}')
    with pytest.raises(ArrowMissing) as caught:
        world.run(rows.RowsHandler(world.engine).read(request))
    assert caught.value.status == 501
    assert "pip install 'tailrace[arrow]'" in caught.value.detail
