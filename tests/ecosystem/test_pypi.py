"""PyPI's `durable-streams`, unmodified."""

from __future__ import annotations

import asyncio
import threading
from itertools import count
from typing import Any, Literal

import pytest
from durable_streams import AsyncDurableStream, DurableStream, SeqConflictError, astream, stream

from tests.support.server import BaseServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JSON = "application/json"
MESSAGES = 12_000
FILLER = "x" * 300
_numbers = count()


@pytest.fixture
def url(server: BaseServerProcess) -> str:
    return f"{server.url}/v1/stream/pypi/{next(_numbers)}"


def write_numbered(url: str) -> DurableStream:
    """More than 3 MiB of JSON."""
    handle = DurableStream.create(url, content_type=JSON, batching=False)
    for start in range(0, MESSAGES, 1000):
        # The client wraps a value in an array; the server flattens one level.
        for part in (range(start, start + 500), range(start + 500, start + 1000)):
            body = [{"n": number, "filler": FILLER} for number in part]
            handle.append({"batch": body})
    return handle


def numbers(items: list[Any]) -> list[int]:
    return [entry["n"] for item in items for entry in item["batch"]]


def test_one_request_reads_everything(url: str) -> None:
    with write_numbered(url), stream(url, live=False) as response:
        assert numbers(response.read_json()) == list(range(MESSAGES))
    with stream(url, live=False) as response:
        assert len(response.read_bytes()) > 3 << 20


def test_the_asynchronous_client_reads_everything(url: str) -> None:
    write_numbered(url).close()

    async def read() -> list[Any]:
        async with astream(url, live=False) as response:
            return await response.read_json()

    assert numbers(asyncio.run(read())) == list(range(MESSAGES))


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_a_live_reader_gets_each_message_once(url: str, live: Literal["sse", "long-poll"]) -> None:
    handle = DurableStream.create(url, content_type=JSON, batching=False)
    for number in range(100):
        handle.append({"n": number})

    def write_more() -> None:
        for number in range(100, 200):
            handle.append({"n": number})

    writer = threading.Thread(target=write_more)
    writer.start()
    seen = []
    with stream(url, offset="-1", live=live) as response:
        for item in response.iter_json():
            seen.append(item["n"])
            if len(seen) == 200:
                break
    writer.join()
    handle.close()
    assert seen == list(range(200))


def test_the_life_of_a_stream(url: str) -> None:
    handle = DurableStream.create(url, content_type="text/plain", batching=False)
    handle.append("one ", seq="1")
    handle.append("two", seq="2")
    with pytest.raises(SeqConflictError):
        handle.append("again", seq="1")
    assert handle.head().content_type == "text/plain"
    with stream(url, live=False) as response:
        assert response.read_text() == "one two"
    handle.delete()
    handle.close()

    async def create() -> str | None:
        made = await AsyncDurableStream.create(url, content_type=JSON)
        head = await made.head()
        await made.aclose()
        return head.content_type

    assert asyncio.run(create()) == JSON
