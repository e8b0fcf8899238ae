"""The client of Tailrace: see :mod:`benchmarks.clients`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from benchmarks.model import STREAMS_AT
from tailrace import AsyncClient, Client

Result = tuple[int, float]


def produce(stream: Any, count: int, message: dict[str, Any]) -> Result:
    began = time.perf_counter()
    with stream.producer() as producer:
        append = producer.append_json
        for number in range(count):
            append({**message, "id": f"{number:06d}"})
    return count, time.perf_counter() - began


async def produce_async(stream: Any, count: int, message: dict[str, Any]) -> Result:
    began = time.perf_counter()
    async with stream.producer() as producer:
        append = producer.append_json
        for number in range(count):
            await append({**message, "id": f"{number:06d}"})
    return count, time.perf_counter() - began


def append(stream: Any, count: int, message: dict[str, Any]) -> Result:
    """One append after another, each awaited."""
    began = time.perf_counter()
    for number in range(count):
        stream.append_json({**message, "id": f"{number:06d}"})
    return count, time.perf_counter() - began


def read(stream: Any) -> Result:
    began = time.perf_counter()
    count = 0
    for _ in stream.tail_json():
        count += 1
    return count, time.perf_counter() - began


async def read_async(stream: Any) -> Result:
    began = time.perf_counter()
    count = 0
    async for _ in stream.tail_json():
        count += 1
    return count, time.perf_counter() - began


def read_chunks(stream: Any) -> Result:
    """Bytes as they arrive: messages are counted by a field name, and not parsed."""
    began = time.perf_counter()
    count = 0
    for chunk in stream.tail():
        count += chunk.data.count(b'"id":')
    return count, time.perf_counter() - began


def follow(stream: Any) -> Result:
    """The clock starts with the first message."""
    print("ready", flush=True)
    count, began = 0, 0.0
    for _ in stream.tail_json():
        if not count:
            began = time.perf_counter()
        count += 1
    return count, time.perf_counter() - began


async def follow_async(stream: Any) -> Result:
    print("ready", flush=True)
    count, began = 0, 0.0
    async for _ in stream.tail_json():
        if not count:
            began = time.perf_counter()
        count += 1
    return count, time.perf_counter() - began


WORKS: dict[tuple[str, str], Any] = {
    ("sync", "produce"): produce,
    ("async", "produce"): produce_async,
    ("append", "produce"): append,
    ("sync", "read"): read,
    ("async", "read"): read_async,
    ("chunks", "read"): read_chunks,
    ("sync", "follow"): follow,
    ("async", "follow"): follow_async,
}


async def run_async(base: str, path: str, work: Any, arguments: tuple[Any, ...]) -> Result:
    async with AsyncClient(base) as client:
        result: Result = await work(client.stream(path), *arguments)
        return result


def main() -> None:
    mode, name, url, count, example = sys.argv[1:]
    base, _, path = url.partition(STREAMS_AT)
    work = WORKS[mode, name]
    arguments = (int(count), json.loads(example)) if name == "produce" else ()
    before = time.process_time()
    if mode == "async":
        messages, seconds = asyncio.run(run_async(base, path, work, arguments))
    else:
        with Client(base) as client:
            messages, seconds = work(client.stream(path), *arguments)
    used = time.process_time() - before
    print(json.dumps({"messages": messages, "seconds": seconds, "processor_seconds": used}))


if __name__ == "__main__":
    main()
