"""The worker loops: what is acknowledged, given back, kept alive, and waited for."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import aclosing
from typing import Any

import pytest

from tailrace.client import AsyncClient, Bucket, Client, Conflict
from tests.support.server import ServerProcess
from tests.support.together import HANG_S, wait_until

JSON = "application/json"
LEASE_MS = 1000
_numbers = itertools.count()


@pytest.fixture
def url(server: ServerProcess) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def bucket(url: str) -> Any:
    with Client(url) as client:
        made = client.bucket(f"worker-{next(_numbers)}")
        made.create()
        made.stream("wakes").create(JSON)
        for name in ("a", "b"):
            made.stream(name).create(JSON)
        made.subscription("s").create(
            streams=["a", "b"], wake_stream="wakes", lease_ttl_ms=LEASE_MS
        )
        yield made


def cursors(bucket: Bucket) -> dict[str, str]:
    return {item.path: item.acked_offset for item in bucket.subscription("s").get().streams}


def tails(bucket: Bucket) -> dict[str, str]:
    return {name: bucket.stream(name).head().next_offset for name in ("a", "b")}


def test_the_end_of_the_body_acknowledges_what_the_wake_told(bucket: Bucket) -> None:
    bucket.stream("a").append_json(1, 2)
    seen = []
    for wake in bucket.subscription("s").work(wait=False):
        for stream in wake.pending:
            items = bucket.stream(stream.path).read_json(stream.acked_offset)
            seen.append((stream.path, [item.value for item in items]))
        if len(seen) == 1:
            # Appended while the body runs: a wake of its own.
            bucket.stream("b").append_json(3)
    assert seen == [("a", [1, 2]), ("b", [3])]
    assert cursors(bucket) == tails(bucket)


def test_a_stream_that_is_deleted_meanwhile_does_not_hold_up_the_others(bucket: Bucket) -> None:
    for name in ("a", "b"):
        bucket.stream(name).append_json(1)
    wakes = 0
    for wake in bucket.subscription("s").work(wait=False):
        wakes += 1
        assert {stream.path for stream in wake.pending} == {"a", "b"}
        bucket.stream("a").delete()
    assert wakes == 1
    assert cursors(bucket) == {"b": bucket.stream("b").head().next_offset}


def test_what_the_body_acknowledges_is_all_that_is(bucket: Bucket) -> None:
    first = bucket.stream("a").append_json(1).next_offset
    assert first is not None
    bucket.stream("a").append_json(2)
    generations = []
    for wake in bucket.subscription("s").work(wait=False):
        generations.append(wake.generation)
        if len(generations) == 1:
            wake.ack({"a": first})
            assert cursors(bucket)["a"] == first
    assert generations == [1, 2]
    assert cursors(bucket) == tails(bucket)


@pytest.mark.parametrize("leave", ["raise", "break"])
def test_an_exception_or_break_gives_the_wake_back(bucket: Bucket, leave: str) -> None:
    bucket.stream("a").append_json(1)
    before = cursors(bucket)

    def work() -> None:
        for _wake in bucket.subscription("s").work("first", wait=False):
            if leave == "break":
                break
            raise ZeroDivisionError

    if leave == "break":
        work()
    else:
        with pytest.raises(ZeroDivisionError):
            work()
    assert cursors(bucket) == before
    # At once, and not only when the lease expires.
    assert bucket.subscription("s").claim("second").generation == 2


def test_heartbeats_keep_the_lease_of_a_slow_body(bucket: Bucket) -> None:
    bucket.stream("a").append_json(1)
    subscription = bucket.subscription("s")
    for wake in subscription.work("slow", wait=False):
        # The lease ended twice without heartbeats.
        threading.Event().wait(2.2 * LEASE_MS / 1000)
        with pytest.raises(Conflict) as claimed:
            subscription.claim("other")
        assert claimed.value.code == "ALREADY_CLAIMED"
        assert not wake.lost
    assert wake.generation == 1
    assert cursors(bucket) == tails(bucket)


def test_a_wake_whose_subscription_is_deleted_is_lost(bucket: Bucket) -> None:
    bucket.stream("a").append_json(1)
    subscription = bucket.subscription("s")
    work = subscription.work(wait=False)
    wake = next(work)
    subscription.delete()
    wait_until(lambda: wake.lost)
    with pytest.raises(Exception, match="404"):
        next(work)


def test_a_loop_waits_for_the_next_wake(bucket: Bucket, url: str) -> None:
    seen: list[list[str]] = []

    def run() -> None:
        with Client(url) as client:
            again = client.bucket(bucket.url.rpartition("/")[2]).subscription("s")
            for wake in again.work("waiting"):
                seen.append([stream.path for stream in wake.pending])
                if len(seen) == 3:
                    wake.ack({item.path: item.tail_offset or "" for item in wake.pending})
                    return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    for count, name in enumerate(("a", "b", "a"), 1):
        bucket.stream(name).append_json(count)
        wait_until(lambda count=count: len(seen) == count)  # type: ignore[misc]
    thread.join(HANG_S)
    assert seen == [["a"], ["b"], ["a"]]


def test_a_loop_without_a_wake_stream_polls(bucket: Bucket) -> None:
    bucket.stream("wakes").delete()
    timer = threading.Timer(0.2, lambda: bucket.stream("a").append_json(1))
    timer.start()
    for wake in bucket.subscription("s").work():
        assert [stream.path for stream in wake.pending] == ["a"]
        break
    timer.join()


def test_two_workers_share_the_work(bucket: Bucket, url: str) -> None:
    seen: list[int] = []
    lock = threading.Lock()
    total = 30

    def run(name: str) -> None:
        with Client(url) as client:
            own = client.bucket(bucket.url.rpartition("/")[2])
            for wake in own.subscription("s").work(name):
                for stream in wake.pending:
                    items = list(own.stream(stream.path).read_json(stream.acked_offset))
                    with lock:
                        seen.extend(item.value for item in items)
                    wake.ack({stream.path: items[-1].next_offset})
                if len(seen) >= total:
                    return

    threads = [threading.Thread(target=run, args=(f"w{n}",), daemon=True) for n in range(2)]
    for thread in threads:
        thread.start()
    for number in range(total):
        bucket.stream("ab"[number % 2]).append_json(number)
    wait_until(lambda: len(seen) >= total)
    assert sorted(seen) == list(range(total))


def test_the_loop_of_the_asynchronous_client(bucket: Bucket, url: str) -> None:
    async def run() -> list[tuple[int, list[str]]]:
        seen: list[tuple[int, list[str]]] = []
        async with AsyncClient(url) as client:
            own = client.bucket(bucket.url.rpartition("/")[2])
            await own.stream("a").append_json(1)
            async for wake in own.subscription("s").work(wait=False):
                if not seen:
                    await asyncio.sleep(1.5 * LEASE_MS / 1000)
                    await own.stream("b").append_json(2)
                seen.append((wake.generation, [stream.path for stream in wake.pending]))
            await own.stream("a").append_json(3)
            async with aclosing(own.subscription("s").work("first")) as work:
                async for wake in work:
                    await wake.ack({})
                    break
            claim = await own.subscription("s").claim("second")
            seen.append((claim.generation, [stream.path for stream in claim.pending]))
        return seen

    assert asyncio.run(run()) == [(1, ["a"]), (2, ["b"]), (4, ["a"])]
