"""A TCP relay between a proxy and the server that counts requests."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

READ_BYTES = 1 << 16
HEADS_KEPT = 1000
_LINE_END = b" HTTP/1.1\r\n"


class CountingRelay:
    """Passes bytes on in both directions; ``requests`` counts the requests so far.

    A request is recognised by its request line. Bodies must not contain one: the
    benchmarks that use this only read.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.port = 0
        self.requests = 0
        self._heads: deque[bytes] = deque(maxlen=HEADS_KEPT)
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()

    def take_heads(self) -> list[str]:
        """The heads of the latest requests since the last call."""
        heads = [head.decode("latin-1") for head in self._heads]
        self._heads.clear()
        return heads

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then close every connection."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=4096)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        # A transport that is still open when the loop is closed raises a ResourceWarning.
        await asyncio.gather(*self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connected(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._closing(writer):
            with suppress(OSError):
                onward = await asyncio.open_connection("127.0.0.1", self._server_port)
                async with self._closing(onward[1]), asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, onward[1], counted=True))
                    group.create_task(self._pass(onward[0], writer, counted=False))

    @asynccontextmanager
    async def _closing(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._writers.discard(writer)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(READ_BYTES):
                if counted:
                    self._count(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    def _count(self, data: bytes) -> None:
        found = data.count(_LINE_END)
        if found:
            self.requests += found
            self._heads.append(data.split(b"\r\n\r\n", 1)[0])


@contextmanager
def counting(port: int) -> Iterator[CountingRelay]:
    """A relay to a server on loopback, in a thread."""
    relay = CountingRelay(port)
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(relay.serve(ready, stop))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(10)
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
