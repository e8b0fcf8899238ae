"""Clients that attack a server, in their own process.

    python -m benchmarks.hostile_clients HOST PORT PATH IDLE SLOW STALLED

All at once, on loopback:

- IDLE connections that do nothing: half of them never send a byte, half send
  one request first. A closed connection is opened again.
- SLOW connections that send one byte of a header per second.
- STALLED readers that follow PATH by SSE, with small buffers, and never read.
- GARBAGE connections that repeatedly send bytes that are not HTTP.

Prints ``ready`` when all are connected, runs until standard input ends, and
then prints its counters as one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
from contextlib import closing, suppress

import uvloop

from benchmarks.blocking import make_request
from benchmarks.machine import allow_many_files

GARBAGE = 20
GARBAGE_PER_SECOND = 10
GARBAGE_BYTES = 2000
STALLED_BUFFER_BYTES = 4096
CONNECTING_MAX = 100
RECONNECT_SECONDS = 0.5
READY_SECONDS = 120.0
HEALTH = b"GET /-/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SLOW_HEAD = b"GET /-/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


class HostileClients:
    """All clients, and their counters."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self._address = (host, port)
        self._path = path
        self._connecting = asyncio.Semaphore(CONNECTING_MAX)
        self._expected = 0
        self._all_connected = asyncio.Event()
        self.counts = {"connections": 0, "closed": 0, "slow_bytes": 0, "garbage": 0, "refused": 0}

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._connecting:
            found = await asyncio.open_connection(*self._address, limit=8192)
        self.counts["connections"] += 1
        return found

    def _connected(self) -> None:
        """Count a client that is connected for the first time."""
        self._expected -= 1
        if self._expected == 0:
            self._all_connected.set()

    async def start(self, idle: int, slow: int, stalled: int) -> list[asyncio.Future[None]]:
        """Start all clients and wait until they are connected. Keep the returned tasks."""
        self._expected = idle + slow + stalled + GARBAGE
        tasks: list[asyncio.Future[None]]
        tasks = [asyncio.ensure_future(self.stalled()) for _ in range(stalled)]
        tasks += [asyncio.ensure_future(self.slow()) for _ in range(slow)]
        tasks += [asyncio.ensure_future(self.garbage(random.Random(n))) for n in range(GARBAGE)]
        tasks += [asyncio.ensure_future(self.idle(number)) for number in range(idle)]
        async with asyncio.timeout(READY_SECONDS):
            await self._all_connected.wait()
        return tasks

    async def idle(self, number: int) -> None:
        """A connection that does nothing, and is opened again when it is closed."""
        counted = False
        while True:
            with suppress(OSError):
                reader, writer = await self._open()
                if number % 2:
                    writer.write(HEALTH)
                if not counted:
                    self._connected()
                counted = True
                while await reader.read(8192):
                    pass
                writer.close()
                self.counts["closed"] += 1
            await asyncio.sleep(RECONNECT_SECONDS * (1 + random.random()))

    async def slow(self) -> None:
        """A request head that never ends, one byte per second."""
        counted = False
        while True:
            with suppress(OSError):
                reader, writer = await self._open()
                writer.write(SLOW_HEAD)
                if not counted:
                    self._connected()
                counted = True
                while not reader.at_eof() and not writer.is_closing():
                    writer.write(b"a")
                    self.counts["slow_bytes"] += 1
                    with suppress(TimeoutError):
                        # The response is ignored. Not `wait_for`, which can lose a
                        # cancellation before Python 3.12.
                        async with asyncio.timeout(1.0):
                            await reader.read(8192)
                writer.close()
                self.counts["closed"] += 1
            await asyncio.sleep(RECONNECT_SECONDS)

    async def stalled(self) -> None:
        """A reader that requests everything and reads nothing."""
        loop = asyncio.get_running_loop()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STALLED_BUFFER_BYTES)
        connection.setblocking(False)
        await loop.sock_connect(connection, self._address)
        request = make_request("GET", f"{self._path}?offset=-1&live=sse")
        await loop.sock_sendall(connection, request)
        self.counts["connections"] += 1
        self._connected()
        await asyncio.Event().wait()

    async def garbage(self, rng: random.Random) -> None:
        """Send bytes that are not HTTP, read the response, and repeat."""
        self._connected()
        while True:
            await asyncio.sleep(rng.random() * 2 / GARBAGE_PER_SECOND)
            with suppress(OSError):
                reader, writer = await self._open()
                with closing(writer):
                    writer.write(rng.randbytes(rng.randrange(1, GARBAGE_BYTES)))
                    async with asyncio.timeout(5.0):
                        response = await reader.read(8192)
                    self.counts["garbage"] += 1
                    self.counts["refused"] += response.startswith(b"HTTP/1.1 4")


async def run(host: str, port: int, path: str, idle: int, slow: int, stalled: int) -> None:
    """Run until standard input ends, and print the counters."""
    clients = HostileClients(host, port, path)
    tasks = await clients.start(idle, slow, stalled)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    clients.counts["ended"] = sum(task.done() for task in tasks)
    print(json.dumps(clients.counts), flush=True)
    # Closing thousands of connections would take time.
    os._exit(0)


def main() -> None:
    """Parse the arguments and run."""
    host, port, path = sys.argv[1:4]
    idle, slow, stalled = map(int, sys.argv[4:7])
    allow_many_files()
    uvloop.run(run(host, int(port), path, idle, slow, stalled))


if __name__ == "__main__":
    main()
