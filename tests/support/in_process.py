"""A server in this process, for tests that change one of its constants."""

from __future__ import annotations

import asyncio
import threading

from tailrace.engine.engine import Engine
from tailrace.engine.memory import MemoryStore
from tailrace.server.service import Service, clock_ms
from tailrace.server.settings import Settings
from tailrace.server.transports.wire import WireServer
from tests.support.http import Connection
from tests.support.together import HANG_S


class InProcessServer:
    """A server with its own event loop in a thread."""

    def __init__(self) -> None:
        self.port = 0
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(HANG_S)

    async def _run(self) -> None:
        settings = Settings(port=0, engine="memory")
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        engine = Engine(MemoryStore(), clock=clock_ms)
        service = Service(engine, settings)
        self.wire = server = WireServer(service, settings)
        self.port = await server.listen()
        self._ready.set()
        await self._stop.wait()
        await server.drain(0.1)
        await service.close()
        await engine.close()

    def stop(self) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(HANG_S)
        assert not self._thread.is_alive()

    def connect(self) -> Connection:
        return Connection("127.0.0.1", self.port)
