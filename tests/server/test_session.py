"""An event stream whose access is revoked while its head is sent."""

from __future__ import annotations

import asyncio

from tailrace.engine.engine import Engine, Outcome
from tailrace.engine.memory import MemoryStore
from tailrace.protocol.state import Append, Create
from tailrace.server.handlers.reads import ReadStart
from tailrace.server.message import Frame, Request
from tailrace.server.service import Service, clock_ms
from tailrace.server.settings import Settings

KEY = b"\0s"
TEXT = "text/plain"


class CollectingSink:
    """A sink that keeps all frames."""

    blocked = False

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.finished = False

    def write_frame(self, frame: Frame) -> None:
        self.frames.append(bytes(frame.data))

    def finish(self) -> None:
        self.finished = True

    def abort(self) -> None:
        self.finished = True


async def _submit(engine: Engine, command: Append | Create) -> None:
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    engine.submit(KEY, command, done.set_result)
    await done


async def _end_before_start() -> None:
    engine = Engine(MemoryStore(), clock=clock_ms)
    service = Service(engine, Settings(engine="memory"))
    await _submit(engine, Create(id=engine.new_id(), content_type=TEXT, body=b"seen"))
    request = Request("GET", b"/v1/stream/s", b"", {}, b"")
    response = service.live.sse(request, engine.find(KEY), ReadStart(None), None)
    assert response.live is not None
    for reader in list(service.live._waiting):
        reader.end()
    await _submit(engine, Append(b"not for them", TEXT))
    taken = CollectingSink()
    response.live.start(taken)
    assert taken.finished
    assert not [frame for frame in taken.frames if b"not for them" in frame]
    assert service.live.count() == (0, 0)
    await service.close()
    await engine.close()


def test_it_gets_a_final_event_and_nothing_else() -> None:
    asyncio.run(_end_before_start())
