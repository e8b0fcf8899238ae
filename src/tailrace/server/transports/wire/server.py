"""The listening socket: accepts, counts and drains connections."""

import asyncio
import socket
from contextlib import suppress
from typing import Final

from tailrace.server.service import Service
from tailrace.server.settings import Settings
from tailrace.server.tls import Tls
from tailrace.server.transports.wire.connection import Connection
from tailrace.server.transports.wire.encode import tick
from tailrace.server.transports.wire.tls_listener import TlsListener

__all__ = ["WireServer"]

_TICK_S: Final = 1.0
_BACKLOG: Final = 4096
LINGERING_MAX: Final = 128
"""At most this many connections above the limit get a 503; others are closed at once."""
# Checking ten thousand in one turn would delay all requests by ten milliseconds.
_CHECKED_PER_TURN: Final = 256


class WireServer:
    """A listening socket and its connections."""

    def __init__(self, service: Service, settings: Settings, tls: Tls | None = None) -> None:
        self.service = service
        self.settings = settings
        self.secure = tls is not None
        self._tls = tls
        self.loop = asyncio.get_running_loop()
        # Coarse time for deadlines: the clock is read once a second instead of once per request.
        self.now = self.loop.time()
        self.draining = False
        self._connections: set[Connection] = set()
        self._lingering: set[Connection] = set()
        self._listener: TlsListener | None = None
        service.metrics.connections = lambda: len(self._connections)
        self._empty = asyncio.Event()
        self._server: asyncio.Server | None = None
        tick()
        self._ticker = self.loop.call_later(_TICK_S, self._tick)

    async def listen(self) -> int:
        """Start accepting connections; returns the port."""
        host, port = self.settings.host, self.settings.port
        if self._tls is not None:
            self._listener = TlsListener(self, self._tls)
            return await self._listener.listen(host, port, _BACKLOG)
        self._server = await self.loop.create_server(
            lambda: Connection(self), host, port, backlog=_BACKLOG
        )
        sockets: tuple[socket.socket, ...] = tuple(self._server.sockets)
        bound: int = sockets[0].getsockname()[1]
        return bound

    def may_linger(self, connection: Connection) -> bool:
        """Whether a connection above the limit may stay open until it got its 503."""
        if len(self._lingering) >= LINGERING_MAX:
            return False
        self._lingering.add(connection)
        return True

    def admit(self, connection: Connection) -> bool:
        """Count a connection; false if there are too many, or too many from its address."""
        if not self.service.guard.limits.connect(connection.address):
            return False
        self._connections.add(connection)
        return True

    def leave(self, connection: Connection) -> None:
        self._lingering.discard(connection)
        if connection in self._connections:
            self._connections.discard(connection)
            self.service.guard.limits.disconnect(connection.address)
        if not self._connections:
            self._empty.set()

    async def drain(self, seconds: float) -> int:
        """
        Stop accepting and let requests in flight finish.

        Returns the number of connections that were still open at the deadline and were closed.
        """
        self.draining = True
        if self._server is not None:
            self._server.close()
        if self._listener is not None:
            self._listener.close()
        self.service.drain()
        self._empty.clear()
        for connection in list(self._connections):
            connection.close_if_idle()
        if self._connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)
        cut = len(self._connections)
        for connection in list(self._connections):
            connection.abort()
        if cut:
            # Their responses must release the store before it is closed.
            await asyncio.sleep(0.01)
        self._ticker.cancel()
        return cut

    def _tick(self) -> None:
        # Schedule the next tick first: an error in this one must not end them.
        self._ticker = self.loop.call_later(_TICK_S, self._tick)
        self.now = self.loop.time()
        tick()
        self._check(list(self._connections))

    def _check(self, connections: list[Connection]) -> None:
        """Check some connections now, and the rest in the next turns of the loop."""
        for connection in connections[-_CHECKED_PER_TURN:]:
            connection.check_deadlines(self.now)
            if self.draining:
                connection.close_if_idle()
        del connections[-_CHECKED_PER_TURN:]
        if connections:
            self.loop.call_soon(self._check, connections)
