"""
A worker over a faulty network processes every message, and loses no acknowledgement.

Goal: at least once, whatever happens to claims, acks, heartbeats and reads. Method: numbers are
appended to the server itself, and a worker receives them through a proxy that cuts, repeats,
delays and rejects by a seed. Then compare what it saw with what was appended.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from pathlib import Path

import pytest

from tailrace.client import AsyncClient, Client
from tests.client.scenario import JSON, RETRY, served
from tests.support.together import HANG_S, wait_until

COUNT = 80
LEASE_MS = 1000
STREAMS = ("orders/a", "orders/b")


def work(url: str, seen: list[int]) -> None:
    with Client(url, retry=RETRY) as client:
        for wake in client.subscription("s").work("worker"):
            for stream in wake.pending:
                for item in client.stream(stream.path).read_json(stream.acked_offset):
                    seen.append(item.value)
            if len(set(seen)) == COUNT and not wake.lost:
                return


async def work_async(url: str, seen: list[int]) -> None:
    async with (
        AsyncClient(url, retry=RETRY) as client,
        aclosing(client.subscription("s").work("worker")) as wakes,
    ):
        async for wake in wakes:
            for stream in wake.pending:
                async for item in client.stream(stream.path).read_json(stream.acked_offset):
                    seen.append(item.value)
            if len(set(seen)) == COUNT and not wake.lost:
                return


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_worker_misses_nothing(kind: str, tmp_path: Path) -> None:
    seen: list[int] = []

    def run() -> None:
        if kind == "sync":
            work(scene.proxy.url, seen)
        else:
            asyncio.run(work_async(scene.proxy.url, seen))

    with served(tmp_path, "worker", kind) as scene:
        client = scene.direct
        client.stream("wakes").create(JSON)
        for name in STREAMS:
            client.stream(name).create(JSON)
        client.subscriptions.create(
            "s", pattern="orders/*", wake_stream="wakes", lease_ttl_ms=LEASE_MS
        )
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        for number in range(COUNT):
            client.stream(STREAMS[number % 2]).append_json(number)
            if number % 4 == 0:
                wait_until(lambda number=number: number in seen)  # type: ignore[misc]
        thread.join(HANG_S)
        assert not thread.is_alive()
        assert set(seen) == set(range(COUNT))
        tails = {name: client.stream(name).head().next_offset for name in STREAMS}

        def is_acknowledged() -> bool:
            # The last wake was given back, or its lease expires: the rest is without faults.
            for _ in client.subscription("s").work("rest", wait=False):
                pass
            streams = client.subscriptions.get("s").streams
            return {item.path: item.acked_offset for item in streams} == tails

        wait_until(is_acknowledged)
