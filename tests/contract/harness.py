"""
An engine over any store, driven from plain functions: a clock that stands still, evictions and
restarts at will.
"""

import asyncio
import gc
import math
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tailrace.engine.base import Store
from tailrace.engine.engine import Engine, Outcome
from tailrace.engine.memory import MemoryStore
from tailrace.engine.rocks import RocksStore
from tailrace.protocol.errors import Refusal
from tailrace.protocol.machine import Effect, Verdict
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.producer import ProducerHeaders
from tailrace.protocol.state import Append, Command, Create, Delete, StreamState

__all__ = ["KINDS", "START_MS", "World", "open_store", "result"]

KINDS: Final = ("memory", "rocks")
START_MS: Final = 1_700_000_000_000
_PATIENCE_S: Final = 20.0

T = TypeVar("T")


def open_store(kind: str, directory: Path) -> Store:
    return MemoryStore() if kind == "memory" else RocksStore(directory)


def result(outcome: Outcome) -> str:
    """What a client learns, in one word: an effect, or a refusal's code."""
    return outcome.code if isinstance(outcome, Refusal) else outcome[0].effect.value


class World:
    """
    One engine and its store. Use it as a context manager.

    Its loop runs only inside the methods, so that nothing happens in between but what another
    thread does.
    """

    def __init__(
        self,
        kind: str,
        directory: Path,
        *,
        sliding: bool = False,
        streams_cached_max: int = 1000,
        wrap: Callable[[Store], Store] | None = None,
    ) -> None:
        self.kind = kind
        self.directory = directory
        self.now = START_MS
        self.failures: list[BaseException] = []
        self._sliding = sliding
        self._streams_cached_max = streams_cached_max
        self._wrap = wrap
        self._runner = asyncio.Runner()
        self.store = self._open_store()
        self.engine = self.run(self._open_engine())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open_store(self) -> Store:
        store = open_store(self.kind, self.directory)
        return store if self._wrap is None else self._wrap(store)

    async def _open_engine(self) -> Engine:
        return Engine(
            self.store,
            clock=lambda: self.now,
            sliding=self._sliding,
            streams_cached_max=self._streams_cached_max,
            on_failure=self.failures.append,
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        self.run(self.engine.close())
        self._runner.close()

    def turn(self) -> None:
        """Let the loop go round a few times, without waiting for a disk."""

        async def rounds() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        self.run(rounds())

    def settle(self) -> None:
        """Until all that is decided is durable."""

        async def settled() -> None:
            commit = self.engine.commit
            async with asyncio.timeout(_PATIENCE_S):
                while commit.open.dirty or commit.syncing is not None:
                    assert commit.failure is None
                    commit.schedule()
                    await asyncio.sleep(0.0005)

        self.run(settled())

    def until(self, holds: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(_PATIENCE_S):
                # The condition may hang on another thread, or on the disk.
                while not holds():  # noqa: ASYNC110
                    await asyncio.sleep(0.0005)

        self.run(wait())

    # -- what can happen to an engine ----------------------------------------------------------

    def reopen(self) -> None:
        """Stop and start again on the same directory; a memory store has none, and only evicts."""
        if self.kind == "memory":
            self.evict()
            return
        self.run(self.engine.close())
        del self.engine
        del self.store
        # Handles that are left behind keep the directory locked.
        gc.collect()
        self.store = self._open_store()
        self.engine = self.run(self._open_engine())

    def evict(self) -> None:
        """Evict every stream from memory."""
        self.settle()
        self.engine.stream_cache.evict(0)
        self.settle()

    def sweep(self) -> None:
        """What the engine does every half second, now: three steps of it."""
        for _ in range(3):
            self.settle()
            self.engine._sweeper._timer.cancel()
            self.engine._sweeper._sweep()
        self.settle()

    def slow_disk(self) -> None:
        """From now on a thread does every fsync."""
        self.engine.commit._slow_until = math.inf

    # -- commands ------------------------------------------------------------------------------

    def submit(self, key: bytes, command: Command, replies: list[Outcome] | None = None) -> None:
        """Submit without letting the loop run."""

        async def work() -> None:
            self.engine.submit(key, command, (replies if replies is not None else []).append)

        # The loop makes one turn to run this; the flush comes in the next.
        self.run(work())

    def do(self, key: bytes, command: Command) -> Outcome:
        async def work() -> Outcome:
            reply: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            self.engine.submit(key, command, reply.set_result)
            async with asyncio.timeout(_PATIENCE_S):
                return await reply

        return self.run(work())

    def state(self, key: bytes, command: Command) -> StreamState:
        """Do a command that must be allowed; the state after it."""
        outcome = self.do(key, command)
        assert not isinstance(outcome, Refusal), outcome
        assert outcome[1] is not None
        return outcome[1]

    def verdict(self, key: bytes, command: Command) -> Verdict:
        outcome = self.do(key, command)
        assert not isinstance(outcome, Refusal), outcome
        return outcome[0]

    def create(
        self,
        key: bytes = b"s",
        *,
        content_type: str = "text/plain",
        body: bytes = b"",
        ttl_s: int | None = None,
        expires_at: int | None = None,
        closed: bool = False,
    ) -> StreamState:
        command = Create(
            id=self.engine.new_id(),
            content_type=content_type,
            ttl_s=ttl_s,
            expires_at=expires_at,
            closed=closed,
            body=body,
        )
        return self.state(key, command)

    def append(
        self,
        key: bytes = b"s",
        body: bytes = b"x",
        *,
        content_type: str | None = "text/plain",
        closes: bool = False,
        claim: ProducerHeaders | None = None,
        seq: str | None = None,
    ) -> StreamState:
        return self.state(key, Append(body, content_type, closes, claim, seq))

    def delete(self, key: bytes = b"s") -> None:
        assert self.verdict(key, Delete()).effect is Effect.DELETED

    # -- reads ---------------------------------------------------------------------------------

    def find(self, key: bytes = b"s") -> StreamState:
        state = self.engine.find(key).durable
        assert state is not None
        return state

    def read(
        self, key: bytes = b"s", start: Offset = START, bytes_max: int = 1 << 30
    ) -> tuple[bytes, Offset]:
        piece = self.engine.read(self.engine.find(key), start, bytes_max)
        assert piece.start == start
        return b"".join(piece.parts), piece.end

    def touch(self, key: bytes = b"s") -> None:
        async def work() -> None:
            self.engine.touch(self.engine.find(key))

        self.run(work())
