"""
PyPI's `durable-streams` 0.1.0 under measurement: see `benchmarks/clients/__init__.py`.

Run by the Python of an environment of its own, so it imports nothing from here.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from durable_streams import (
    AsyncDurableStream,
    DurableStream,
    astream,
    stream,
)

JSON = "application/json"
THREADS = 64
TASKS = 1_000
NO_PRODUCER = "it has no producer: what is sent again after a lost answer is stored twice"
NO_CLOSURE = "it does not know closure: it stops at the tail"
NO_END = "it does not know closure: it stops after the last message"

Result = tuple[int, float, str]


def append(url: str, count: int, message: dict[str, Any]) -> Result:
    """One append after another, each awaited."""
    with DurableStream(url, content_type=JSON, batching=False) as handle:
        began = time.perf_counter()
        for number in range(count):
            handle.append({**message, "id": f"{number:06d}"})
        return count, time.perf_counter() - began, NO_PRODUCER


def append_by_threads(url: str, count: int, message: dict[str, Any]) -> Result:
    """64 threads: appends that wait at the same time are sent in one request."""
    with (
        DurableStream(url, content_type=JSON) as handle,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        began = time.perf_counter()
        messages = ({**message, "id": f"{number:06d}"} for number in range(count))
        for _ in pool.map(handle.append, messages):
            pass
        return count, time.perf_counter() - began, NO_PRODUCER


async def append_by_tasks(url: str, count: int, message: dict[str, Any]) -> Result:
    """1,000 tasks: appends that wait at the same time are sent in one request."""
    async with AsyncDurableStream(url, content_type=JSON) as handle:
        began = time.perf_counter()
        for first in range(0, count, TASKS):
            numbers = range(first, min(first + TASKS, count))
            await asyncio.gather(
                *(handle.append({**message, "id": f"{number:06d}"}) for number in numbers)
            )
        return count, time.perf_counter() - began, NO_PRODUCER


def read(url: str) -> Result:
    began = time.perf_counter()
    count = 0
    with stream(url, offset="-1", live=False) as response:
        for _ in response.iter_json():
            count += 1
    return count, time.perf_counter() - began, NO_CLOSURE


async def read_async(url: str) -> Result:
    began = time.perf_counter()
    count = 0
    async with astream(url, offset="-1", live=False) as response:
        async for _ in response.iter_json():
            count += 1
    return count, time.perf_counter() - began, NO_CLOSURE


def follow(url: str, expected: int) -> Result:
    """The clock starts with the first message."""
    count, began = 0, 0.0
    with stream(url, offset="-1", live="sse") as response:
        print("ready", flush=True)
        for _ in response.iter_json():
            if not count:
                began = time.perf_counter()
            count += 1
            if count == expected:
                break
        return count, time.perf_counter() - began, NO_END


async def follow_async(url: str, expected: int) -> Result:
    count, began = 0, 0.0
    async with astream(url, offset="-1", live="sse") as response:
        print("ready", flush=True)
        async for _ in response.iter_json():
            if not count:
                began = time.perf_counter()
            count += 1
            if count == expected:
                break
        return count, time.perf_counter() - began, NO_END


def main() -> None:
    mode, name, url, text, example = sys.argv[1:]
    count, message = int(text), json.loads(example)
    works: dict[tuple[str, str], Any] = {
        ("append", "produce"): lambda: append(url, count, message),
        ("sync", "produce"): lambda: append_by_threads(url, count, message),
        ("async", "produce"): lambda: asyncio.run(append_by_tasks(url, count, message)),
        ("sync", "read"): lambda: read(url),
        ("async", "read"): lambda: asyncio.run(read_async(url)),
        ("sync", "follow"): lambda: follow(url, count),
        ("async", "follow"): lambda: asyncio.run(follow_async(url, count)),
    }
    before = time.process_time()
    messages, seconds, note = works[mode, name]()
    used = time.process_time() - before
    found = {"messages": messages, "seconds": seconds, "note": note}
    print(json.dumps({**found, "processor_seconds": used}))


if __name__ == "__main__":
    main()
