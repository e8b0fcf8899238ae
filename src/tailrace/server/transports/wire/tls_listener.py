"""
Listening with TLS: connections are accepted here and not by the loop's own server.

Rule 1: a connection counts towards the limits as soon as it is accepted. The loop's own server
reports a connection only after its handshake, so that clients without one could use up the open
files of the process.

Rule 2: each handshake uses the current certificate, which a reload may have replaced.
"""

import asyncio
import socket
from typing import TYPE_CHECKING, Final

import structlog

from tailrace.server.tls import Tls
from tailrace.server.transports.wire.connection import Connection

if TYPE_CHECKING:
    from tailrace.server.transports.wire.server import WireServer

__all__ = ["TlsListener"]

HANDSHAKE_S: Final = 15.0
ACCEPTED_PER_TURN: Final = 64
_PAUSE_S: Final = 1.0

log = structlog.get_logger("tailrace")


class TlsListener:
    """Listening sockets, and the handshakes in progress."""

    def __init__(self, server: "WireServer", tls: Tls) -> None:
        self._server = server
        self._tls = tls
        self._loop = server.loop
        self._sockets: list[socket.socket] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, backlog: int) -> int:
        """Start accepting on all addresses of a host; returns the port."""
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                if self._sockets and not port:
                    # The free port of the first, for all of them.
                    address = (address[0], self._port(), *address[2:])
                # Of an IPv6 address, for IPv6 only: IPv4 has a socket of its own.
                listening = socket.create_server(address, family=family, backlog=backlog)
                listening.setblocking(False)
                self._sockets.append(listening)
        except OSError:
            self.close()
            raise
        for listening in self._sockets:
            self._resume(listening)
        return self._port()

    def close(self) -> None:
        """Stop accepting, and cancel the handshakes."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for handshake in self._handshakes:
            handshake.cancel()

    def _port(self) -> int:
        port: int = self._sockets[0].getsockname()[1]
        return port

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of files, for instance: without a pause this would repeat at once.
                log.error("cannot accept a connection", error=str(error))
                self._loop.remove_reader(listening)
                self._loop.call_later(_PAUSE_S, self._resume, listening)
                return
            connection = Connection(self._server)
            if not connection.admit(address[0]):
                # No response is possible before the handshake.
                accepted.close()
                continue
            accepted.setblocking(False)
            task = self._loop.create_task(self._handshake(connection, accepted))
            # The loop itself does not keep a task alive.
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, connection: Connection, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls.context,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except (Exception, asyncio.CancelledError):
            # The handshake failed: the connection no longer counts.
            connection.connection_lost(None)
