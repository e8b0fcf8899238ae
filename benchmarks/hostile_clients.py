"""Clients that mean no good, in a process of their own.

    python -m benchmarks.hostile_clients HOST PORT PATH IDLE SLOW DEAF

On loopback, all at once:

- IDLE connections that do nothing: half of them never send a byte, half send
  one request first. One that the server closes comes back.
- SLOW connections that send a byte of a header each second.
- DEAF readers that follow PATH by SSE, with small buffers, and never read.
- GARBAGE connections that send bytes which are no HTTP, again and again, each
  some times a second.

Prints ``ready`` when all are connected, goes on until standard input ends, and
then prints one JSON line with what it did.
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
DEAF_BUFFER_BYTES = 4096
AT_ONCE = 100
BACK_SECONDS = 0.5
READY_SECONDS = 120.0
HEALTH = b"GET /-/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SLOW_HEAD = b"GET /-/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


class Crowd:
    """All of them, and what they counted."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self._address = (host, port)
        self._path = path
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._expected = 0
        self._all_there = asyncio.Event()
        self.counts = {"connections": 0, "closed": 0, "slow_bytes": 0, "garbage": 0, "refused": 0}

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._gate:
            found = await asyncio.open_connection(*self._address, limit=8192)
        self.counts["connections"] += 1
        return found

    def _there(self) -> None:
        """One more is connected for the first time."""
        self._expected -= 1
        if self._expected == 0:
            self._all_there.set()

    async def let_loose(self, idle: int, slow: int, deaf: int) -> list[asyncio.Future[None]]:
        """Start them, and keep what this returns; all are connected then."""
        self._expected = idle + slow + deaf + GARBAGE
        tasks: list[asyncio.Future[None]]
        tasks = [asyncio.ensure_future(self.deaf()) for _ in range(deaf)]
        tasks += [asyncio.ensure_future(self.slow()) for _ in range(slow)]
        tasks += [asyncio.ensure_future(self.garbage(random.Random(n))) for n in range(GARBAGE)]
        tasks += [asyncio.ensure_future(self.idle(number)) for number in range(idle)]
        async with asyncio.timeout(READY_SECONDS):
            await self._all_there.wait()
        return tasks

    async def idle(self, number: int) -> None:
        """One connection that does nothing, and comes back when it is closed."""
        met = False
        while True:
            with suppress(OSError):
                reader, writer = await self._open()
                if number % 2:
                    writer.write(HEALTH)
                if not met:
                    self._there()
                met = True
                while await reader.read(8192):
                    pass
                writer.close()
                self.counts["closed"] += 1
            await asyncio.sleep(BACK_SECONDS * (1 + random.random()))

    async def slow(self) -> None:
        """A head that never ends, a byte a second."""
        met = False
        while True:
            with suppress(OSError):
                reader, writer = await self._open()
                writer.write(SLOW_HEAD)
                if not met:
                    self._there()
                met = True
                while not reader.at_eof() and not writer.is_closing():
                    writer.write(b"a")
                    self.counts["slow_bytes"] += 1
                    with suppress(TimeoutError):
                        # What is told to a slow client is nothing to it. Not `wait_for`, which
                        # before Python 3.12 can lose a cancellation.
                        async with asyncio.timeout(1.0):
                            await reader.read(8192)
                writer.close()
                self.counts["closed"] += 1
            await asyncio.sleep(BACK_SECONDS)

    async def deaf(self) -> None:
        """A reader that asks for everything and takes nothing."""
        loop = asyncio.get_running_loop()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DEAF_BUFFER_BYTES)
        connection.setblocking(False)
        await loop.sock_connect(connection, self._address)
        request = make_request("GET", f"{self._path}?offset=-1&live=sse")
        await loop.sock_sendall(connection, request)
        self.counts["connections"] += 1
        self._there()
        await asyncio.Event().wait()

    async def garbage(self, chance: random.Random) -> None:
        """Bytes that are no HTTP; the answer is read, then again."""
        self._there()
        while True:
            await asyncio.sleep(chance.random() * 2 / GARBAGE_PER_SECOND)
            with suppress(OSError):
                reader, writer = await self._open()
                with closing(writer):
                    writer.write(chance.randbytes(chance.randrange(1, GARBAGE_BYTES)))
                    async with asyncio.timeout(5.0):
                        answer = await reader.read(8192)
                    self.counts["garbage"] += 1
                    self.counts["refused"] += answer.startswith(b"HTTP/1.1 4")


async def run(host: str, port: int, path: str, idle: int, slow: int, deaf: int) -> None:
    """Let them loose until standard input ends, and tell what they did."""
    crowd = Crowd(host, port, path)
    tasks = await crowd.let_loose(idle, slow, deaf)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    crowd.counts["ended"] = sum(task.done() for task in tasks)
    print(json.dumps(crowd.counts), flush=True)
    # Thousands of connections need no farewell, and no time for one.
    os._exit(0)


def main() -> None:
    """Read who there is."""
    host, port, path = sys.argv[1:4]
    idle, slow, deaf = map(int, sys.argv[4:7])
    allow_many_files()
    uvloop.run(run(host, int(port), path, idle, slow, deaf))


if __name__ == "__main__":
    main()
