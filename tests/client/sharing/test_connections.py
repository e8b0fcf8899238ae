"""Connections: how they are shared, and when they are closed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.client import AsyncClient, Client, NotFound
from tests.client.conftest import connected
from tests.client.sharing.leftovers import TEXT, many_files, numbers, open_connections, run, until
from tests.support.server import ServerProcess
from tests.support.together import together, wait_until


class TestIteration:
    def test_leaving_a_tail_closes_it(self, steady: ServerProcess) -> None:
        with Client(steady.url) as client:
            stream = client.stream(f"left/{next(numbers)}")
            stream.create(TEXT, body=b"x")
            tail = stream.tail(live="sse")
            for chunk in tail:
                assert chunk.data == b"x"
                break
            stream.append(b"y", TEXT)
            assert next(tail).data == b"y"
            assert not stream.head().closed
            # One with events for the tail, one that waits for the next request.
            assert open_connections(steady.port) == 2
            del tail
            assert open_connections(steady.port) == 1
            # Unread events do not affect the next request.
            assert stream.close().next_offset == stream.head().next_offset
            assert open_connections(steady.port) == 1
        assert open_connections(steady.port) == 0

    def test_closing_a_tail_closes_its_connection_at_once(self, steady: ServerProcess) -> None:
        """And not by a task that the loop makes for it some time later."""

        async def main() -> None:
            async with AsyncClient(steady.url) as client:
                stream = client.stream(f"left/{next(numbers)}")
                await stream.create(TEXT, body=b"x")
                for beginning in (lambda: None, stream.head):
                    tail = stream.tail()
                    assert (await anext(tail)).data == b"x"
                    await (beginning() or asyncio.sleep(0))
                    before = asyncio.all_tasks()
                    await tail.aclose()
                    for _ in range(3):
                        assert asyncio.all_tasks() == before
                        await asyncio.sleep(0)

        run(main)

    def test_a_tail_is_closed_by_the_garbage_collector(self, steady: ServerProcess) -> None:
        async def main() -> None:
            async with AsyncClient(steady.url) as client:
                stream = client.stream(f"left/{next(numbers)}")
                await stream.create(TEXT)

                async def first() -> None:
                    await stream.append(b"x", TEXT)
                    async for _ in stream.tail():
                        await stream.append(b"y", TEXT)
                        break

                await first()
                gc.collect()
                await until(lambda: len(asyncio.all_tasks()) == 1)
                assert (await stream.head()).content_type == TEXT
            await until(lambda: open_connections(steady.port) == 0)

        run(main)

    def test_an_unused_stream(self, kind: str, steady: ServerProcess) -> None:
        with connected(kind, steady.url) as client:
            stream = client.stream("never")
            del stream
            assert open_connections(steady.port) == 0


class TestConnections:
    def test_connections_are_reused(self, kind: str, steady: ServerProcess) -> None:
        with connected(kind, steady.url) as client:
            stream = client.stream(f"again/{next(numbers)}")
            stream.create(TEXT)
            for _ in range(20):
                # Not `head`: its answer may say neither how long it is nor that it ends, and
                # aiohttp then closes the connection.
                stream.append(b"x", TEXT)
                list(stream.read())
                with pytest.raises(NotFound):
                    client.stream("nothing").delete()
            assert open_connections(steady.port) == 1
        wait_until(lambda: open_connections(steady.port) == 0)

    def test_with_closes_idle_connections(self, steady: ServerProcess) -> None:
        with Client(steady.url) as client:
            stream = client.stream(f"wait/{next(numbers)}")
            stream.create(TEXT)
            tails = [stream.tail() for _ in range(5)]
            for tail in tails:
                stream.append(b"x", TEXT)
                next(tail)
            together([stream.head] * 8)
            assert open_connections(steady.port) >= 1
            for tail in tails:
                tail.close()
            assert open_connections(steady.port) >= 1
        assert open_connections(steady.port) == 0

    def test_threads_share_a_client(self, steady: ServerProcess) -> None:
        """Sixteen at once, each doing everything, each with its own stream and one for all."""
        with Client(steady.url) as client:
            shared = client.stream(f"threads/{next(numbers)}")
            shared.create("application/json")

            def work(number: int) -> None:
                own = client.stream(f"{shared.url.rpartition('/')[2]}/{number}")
                own.create(TEXT)
                for at in range(10):
                    own.append(b"%d," % at, TEXT)
                    shared.append_json([number, at])
                    assert own.head().content_type == TEXT
                    with pytest.raises(NotFound):
                        client.stream("nothing").delete()
                text = "".join(chunk.text for chunk in closing_tail(own))
                assert text == "".join(f"{at}," for at in range(10))
                own.delete()

            together([lambda number=number: work(number) for number in range(16)])  # type: ignore[misc]
            found = [tuple(item.value) for item in shared.read_json()]
            assert sorted(found) == [(number, at) for number in range(16) for at in range(10)]
            for number in range(16):
                assert [at for other, at in found if other == number] == list(range(10))
        assert open_connections(steady.port) == 0

    def test_a_process_with_many_open_files(self, kind: str, steady: ServerProcess) -> None:
        """`select` cannot look at a file number above 1023; a client's sockets may have one."""
        with connected(kind, steady.url) as client, many_files(1100):
            stream = client.stream(f"files/{next(numbers)}")
            stream.create(TEXT)
            assert stream.append(b"x", TEXT).next_offset == stream.head().next_offset


def closing_tail(stream: Any) -> Iterator[Any]:
    stream.close()
    yield from stream.tail_text()


class TestLoops:
    def test_a_closed_client_cannot_be_used(self, steady: ServerProcess) -> None:
        """A new session would never be closed."""
        client = AsyncClient(steady.url)
        stream = client.stream(f"loops/{next(numbers)}")

        async def first() -> None:
            await stream.create(TEXT)
            await client.close()
            with pytest.raises(RuntimeError, match="closed"):
                await stream.head()

        asyncio.run(first())
        with pytest.raises(RuntimeError, match="closed"):
            asyncio.run(_head(stream))

    def test_another_event_loop_is_an_error(self, steady: ServerProcess) -> None:
        """Two at the same time: an error that names the reason, and no hang."""
        client = AsyncClient(steady.url)
        stream = client.stream(f"loops/{next(numbers)}")
        with asyncio.Runner() as one, asyncio.Runner() as other:
            one.run(stream.create(TEXT))
            with pytest.raises(RuntimeError, match=r"AsyncClient.*event loop"):
                other.run(stream.head())
            assert one.run(stream.head()).content_type == TEXT
            one.run(client.close())


async def _head(stream: Any) -> None:
    await stream.head()
