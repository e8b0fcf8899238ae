"""An engine in this process with its metrics, for tests that need no server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tailrace.engine.engine import Engine, Outcome
from tailrace.engine.memory import MemoryStore
from tailrace.engine.rocks import RocksStore
from tailrace.protocol.errors import Refusal
from tailrace.protocol.names import bucketed_stream_key
from tailrace.protocol.state import Append, Command, Create, Delete
from tailrace.server.message import Request, Response
from tailrace.server.observability.metrics import Metrics
from tailrace.server.observability.metrics.families import collect
from tailrace.server.settings import Settings
from tests.server.metrics.pages import Page

__all__ = ["Counted", "Refused", "opened"]

# Live readers are tested with a real server.
NO_READERS: Any = SimpleNamespace(
    count=lambda: (0, 0), sent_bytes=0, reads=SimpleNamespace(compressed_bytes=0)
)


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Refused(Exception):
    """The engine rejected a command of a test."""


class Counted:
    """An engine, its metrics, and short methods for commands."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self.engine = engine
        self.metrics = metrics

    async def create_bucket(self, bucket: str) -> None:
        await self._durable(lambda reply: self.engine.buckets.create(bucket.encode(), reply))

    async def delete_bucket(self, bucket: str) -> None:
        await self._durable(lambda reply: self.engine.buckets.delete(bucket.encode(), reply))

    async def append(self, bucket: str, stream: str, body: bytes) -> None:
        """Append to a stream, which is created if it does not exist."""
        await self.create(bucket, stream)
        await self._submit(bucket, stream, Append(body, "text/plain", False, None, None))

    async def create(self, bucket: str, stream: str, body: bytes = b"") -> None:
        create = Create(
            id=self.engine.new_id(), content_type="text/plain", ttl_s=None, expires_at=None,
            closed=False, body=body,
        )  # fmt: skip
        await self._submit(bucket, stream, create)

    async def delete(self, bucket: str, stream: str) -> None:
        await self._submit(bucket, stream, Delete())

    def count_response(self, operation: str, status: int, code: str | None = None) -> None:
        """Count a response, as a transport does."""
        request = Request("GET", b"/", b"", {}, b"")
        request.operation = operation
        request.started = time.monotonic()
        response = Response(status, [])
        response.code = code
        self.metrics.count_response(request, response)

    def page(self) -> Page:
        families = list(collect(self.metrics))
        return Page(self.metrics._text(families, b"")[1].decode())

    async def _submit(self, bucket: str, stream: str, command: Command) -> None:
        key = bucketed_stream_key(bucket, stream)
        await self._durable(lambda reply: self.engine.submit(key, command, reply))

    async def _durable(self, do: Callable[[Callable[[Outcome], None]], None]) -> None:
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        do(done.set_result)
        outcome = await done
        if isinstance(outcome, Refusal):
            raise Refused(outcome)


@asynccontextmanager
async def opened(path: Path | None = None, buckets_max: int = 100) -> AsyncIterator[Counted]:
    """An engine over this directory, or in memory."""
    store = MemoryStore() if path is None else RocksStore(path)
    settings = Settings(
        engine="memory" if path is None else "rocksdb", metrics_buckets_max=buckets_max
    )
    engine = Engine(store, clock=clock_ms)
    try:
        yield Counted(engine, Metrics(engine, NO_READERS, settings))
    finally:
        await engine.close()
