"""Cancelled operations, and those whose client is closed, end and leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tailrace.client import AsyncClient, Client, Retry, TailraceError
from tests.client.sharing.leftovers import (
    TEXT,
    at,
    cancelled,
    drain,
    ended,
    numbers,
    open_connections,
    run,
    until,
)
from tests.client.tiers import slow
from tests.support.server import ServerProcess


class TestCancellation:
    def test_of_a_tail_that_waits(self, steady: ServerProcess) -> None:
        async def main() -> None:
            async with AsyncClient(steady.url) as client:
                stream = client.stream(f"cancel/{next(numbers)}")
                await stream.create(TEXT, body=b"x")
                task = asyncio.create_task(drain(stream.tail()))
                # A second connection is needed once the first one is taken by the events.
                while open_connections(steady.port) < 2:
                    await stream.append(b"x", TEXT)
                await cancelled(task)
                await until(lambda: open_connections(steady.port) == 1)
                await stream.append(b"x", TEXT)
                assert open_connections(steady.port) == 1
            await until(lambda: open_connections(steady.port) == 0)

        run(main)

    @pytest.mark.parametrize("operation", ["append", "tail", slow("head"), slow("bootstrap")])
    def test_of_a_request_in_progress(self, silent: int, operation: str) -> None:
        async def main() -> None:
            async with AsyncClient(at(silent)) as client:
                task = asyncio.create_task(begin(client, operation))
                await until(lambda: open_connections(silent) == 1)
                await cancelled(task)
                await until(lambda: open_connections(silent) == 0)

        run(main)

    def test_of_a_pause_before_the_next_attempt(self) -> None:
        async def main() -> None:
            pauses = asyncio.Event()

            def jitter() -> float:
                pauses.set()
                return 1.0

            retry = Retry(first_s=1000.0, longest_s=1000.0, jitter=jitter)
            async with AsyncClient(at(9), retry=retry) as client:
                task = asyncio.create_task(client.stream("s").head())
                await pauses.wait()
                await asyncio.sleep(0)
                await cancelled(task)

        run(main)

    @pytest.mark.parametrize("steps", [range(0, 20, 4), slow(range(20))], ids=["some", "all"])
    def test_of_many_at_once(self, steady: ServerProcess, steps: range) -> None:
        """In any state of each of them; the client can be used afterwards."""

        async def main() -> None:
            async with AsyncClient(steady.url) as client:
                stream = client.stream(f"cancel/{next(numbers)}")
                await stream.create(TEXT)
                work: list[Callable[[], Awaitable[Any]]] = [
                    lambda: stream.append(b"x" * 1000, TEXT),
                    stream.head,
                    lambda: drain(stream.read()),
                    lambda: drain(stream.tail()),
                ]
                for pauses in steps:
                    tasks = [asyncio.ensure_future(begun()) for begun in work * 5]
                    for _ in range(pauses):
                        await asyncio.sleep(0)
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                tail = (await stream.append(b"end", TEXT, close=True)).next_offset
                assert (await stream.head()).next_offset == tail
            await until(lambda: open_connections(steady.port) == 0)

        run(main)


async def begin(client: AsyncClient, operation: str) -> None:
    stream = client.stream("s")
    if operation == "append":
        await stream.append(b"x" * 100_000)
    elif operation == "tail":
        await drain(stream.tail())
    else:
        await getattr(stream, operation)()


class TestCloseDuringAnOperation:
    """Closing a client ends the operations in progress with an error."""

    def test_during_a_tail(self, steady: ServerProcess) -> None:
        async def main() -> None:
            client = AsyncClient(steady.url)
            stream = client.stream(f"close/{next(numbers)}")
            await stream.create(TEXT, body=b"x")
            tail = stream.tail()
            await anext(tail)
            task = asyncio.create_task(drain(tail))
            await until(lambda: open_connections(steady.port) == 1)
            await client.close()
            error = await ended(task)
            assert isinstance(error, TailraceError | RuntimeError | ValueError)
            await until(lambda: open_connections(steady.port) == 0)
            await client.close()

        run(main)

    @pytest.mark.parametrize("operation", ["append", "tail", slow("head"), slow("bootstrap")])
    def test_during_a_request(self, silent: int, operation: str) -> None:
        async def main() -> None:
            client = AsyncClient(at(silent))
            task = asyncio.create_task(begin(client, operation))
            await until(lambda: open_connections(silent) == 1)
            await client.close()
            error = await ended(task)
            assert isinstance(error, TailraceError | RuntimeError | ValueError)
            await until(lambda: open_connections(silent) == 0)
            await client.close()

        run(main)

    def test_during_a_tail_of_a_thread(self, steady: ServerProcess) -> None:
        """`close` closes idle connections; one in use is closed when it is no longer used."""
        client = Client(steady.url)
        stream = client.stream(f"close/{next(numbers)}")
        stream.create(TEXT, body=b"x")
        tail = stream.tail()
        assert next(tail).data == b"x"
        client.close()
        with Client(steady.url) as other:
            other.stream(stream.url.partition("/v1/stream/")[2]).append(b"y", TEXT, close=True)
        assert [chunk.data for chunk in tail] == [b"y"]
        assert open_connections(steady.port) == 0
