"""Many long-poll readers of one stream, in their own process.

    python -m benchmarks.long_pollers HOST PORT PATH COUNT

Each reads on from the tail, with the offset and the cursor of its last response,
until it receives the message ``last``. Prints ``ready`` when all are connected
and have the tail, and at the end one JSON line. A message counts as received
when its whole response has arrived.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time

import uvloop

from benchmarks.blocking import Connection, make_request, parse_head
from benchmarks.machine import allow_many_files

CONNECTING_MAX = 50
_MARK = re.compile(rb"@(\d{8}) (\d{20});")
LAST = b"last"


class Results:
    """The counters of all readers."""

    def __init__(self) -> None:
        self.delays_ms: list[float] = []
        self.received = 0
        self.wrong = 0
        self.statuses: dict[int, int] = {}


class Poller:
    """One reader."""

    def __init__(self, host: str, port: int, path: str, offset: str, results: Results) -> None:
        self._address = (host, port)
        self._path = path
        self._offset = offset
        self._cursor = ""
        self._next = 0
        self._results = results

    async def connect(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def follow(self) -> None:
        """Poll until the last message has arrived."""
        while True:
            query = f"live=long-poll&offset={self._offset}"
            if self._cursor:
                query = f"cursor={self._cursor}&{query}"
            self._writer.write(make_request("GET", f"{self._path}?{query}"))
            status, headers = parse_head((await self._reader.readuntil(b"\r\n\r\n"))[:-4])
            body = await self._reader.readexactly(int(headers.get("content-length", "0")))
            statuses = self._results.statuses
            statuses[status] = statuses.get(status, 0) + 1
            if status not in (200, 204):
                raise SystemExit(f"a reader was rejected: {status} {body!r}")
            self._offset = headers["stream-next-offset"]
            self._cursor = headers.get("stream-cursor", "")
            self._take(body)
            if body.endswith(LAST):
                self._writer.close()
                return

    def _take(self, body: bytes) -> None:
        now = time.monotonic_ns()
        for match in _MARK.finditer(body):
            self._results.received += 1
            self._results.wrong += int(match[1]) != self._next
            self._next = int(match[1]) + 1
            self._results.delays_ms.append((now - int(match[2])) / 1e6)


async def run(host: str, port: int, path: str, count: int) -> Results:
    """Connect all readers, some at a time, and follow."""
    with Connection(host, port) as connection:
        tail = connection.expect(200, make_request("GET", f"{path}?offset=now"))
    results = Results()
    offset = tail.headers["stream-next-offset"]
    pollers = [Poller(host, port, path, offset, results) for _ in range(count)]
    for first in range(0, count, CONNECTING_MAX):
        await asyncio.gather(
            *(poller.connect() for poller in pollers[first : first + CONNECTING_MAX])
        )
    following = [asyncio.ensure_future(poller.follow()) for poller in pollers]
    await asyncio.sleep(0)
    print("ready", flush=True)
    await asyncio.gather(*following)
    return results


def main() -> None:
    """Follow a stream with many readers and print the result."""
    host, port, path, count = sys.argv[1:5]
    allow_many_files()
    results = uvloop.run(run(host, int(port), path, int(count)))
    delays = sorted(results.delays_ms) or [0.0]
    found = {
        "received": results.received,
        "wrong": results.wrong,
        "statuses": results.statuses,
        "p50_ms": delays[len(delays) // 2],
        "p99_ms": delays[len(delays) * 99 // 100],
        "max_ms": delays[-1],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
