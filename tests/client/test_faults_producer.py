"""
Producers over a faulty network store each message once and in order.

Goal: the guarantees of `Producer`. Method: it writes numbers through a proxy that cuts, rejects,
reorders and repeats requests by a seed (`FaultProxy`), to a server that is killed in between. Then
read the stream directly from the server, and compare.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.client import ProducerFenced, TailraceError
from tests.client.scenario import JSON, Scene, done, opened, play, served
from tests.client.tiers import async_first, slow, sync_first
from tests.support.alongside import Wait, alongside
from tests.support.fault_plan import Fault

BINARY = "application/octet-stream"
TWICE = {Fault.TWICE_FIRST, Fault.TWICE_SECOND, Fault.TWICE_LATE}


def killing(scene: Scene, *exchanges: int) -> Any:
    """Kill and restart the server at each of these numbers of exchanges."""

    def kill(wait: Wait) -> None:
        for count in exchanges:
            wait(lambda count=count: scene.proxy.exchanges >= count)  # type: ignore[misc]
            scene.server.restart()

    return alongside(kill)


@pytest.mark.parametrize(
    ("count", "batch", "kills"), [(6_000, 50, [60]), slow(100_000, 200, [100, 200, 300])]
)
def test_many_messages(kind: str, count: int, batch: int, kills: list[int], tmp_path: Path) -> None:
    """In many requests, half of which meet a fault, while the server is killed."""
    with served(tmp_path, kind, count) as scene:
        scene.direct.stream("s").create(JSON)

        async def write() -> None:
            pad = "x" * 168
            async with opened(kind, scene.proxy.url) as client:
                # A short queue: the producer is never far ahead of the server.
                producer = client.stream("s").producer(
                    batch_count_max=batch, queue_count_max=5 * batch
                )
                for at in range(count):
                    await done(producer.append_json({"n": at, "pad": pad}))
                await done(producer.flush())
                assert producer.undelivered() == []
                await done(producer.close())

        with killing(scene, *kills):
            play(write())
        assert scene.numbers() == list(range(count))
        scene.assert_faults()


@sync_first
def test_close_stream(kind: str, tmp_path: Path) -> None:
    """With the last messages or after them: all are stored, then the stream is closed."""
    with served(tmp_path, kind, "close") as scene:

        async def write() -> None:
            async with opened(kind, scene.proxy.url) as client:
                for at in range(40):
                    stream = scene.direct.stream(f"s/{at}")
                    stream.create(JSON)
                    producer = client.stream(f"s/{at}").producer(batch_count_max=3)
                    for n in range(25):
                        await done(producer.append_json(n))
                    if at % 4 == 0:
                        await done(producer.flush())
                    await done(producer.close_stream())
                    await done(producer.close())
                    assert [item.value for item in stream.read_json()] == list(range(25))
                    assert stream.head().closed

        play(write())
        scene.assert_faults()


@async_first
def test_each_append_is_a_message_of_a_binary_stream(kind: str, tmp_path: Path) -> None:
    messages = [b"%d\x00" % at for at in range(500)]
    with served(tmp_path, kind, "binary") as scene:
        stream = scene.direct.stream("s")
        stream.create(BINARY)

        async def write() -> None:
            async with opened(kind, scene.proxy.url) as client:
                producer = client.stream("s").producer(
                    content_type=BINARY, batch_count_max=1, queue_count_max=50
                )
                for message in messages:
                    await done(producer.append(message))
                await done(producer.close())

        with killing(scene, 200):
            play(write())
        assert b"".join(chunk.data for chunk in stream.read()) == b"".join(messages)
        # Our offsets begin with the number of messages before them.
        assert int(stream.head().next_offset.partition("_")[0]) == len(messages)
        scene.assert_faults()


@sync_first
def test_two_producers_on_one_stream(kind: str, tmp_path: Path) -> None:
    """With ids that the user chose: each in its own order, independent of the other."""
    count, names = 4_000, ("one", "two")
    with served(tmp_path, kind, "two") as scene:
        scene.direct.stream("s").create(JSON)

        async def write() -> None:
            async with opened(kind, scene.proxy.url) as client:
                producers = [
                    client.stream("s").producer(name, batch_count_max=40, queue_count_max=200)
                    for name in names
                ]
                with scene.proxy.calm():
                    # A first batch that is a duplicate may be from another producer with the same
                    # id. The two cases look alike, so it is an error.
                    for producer in producers:
                        await done(producer.append_json([producer.producer_id, 0]))
                        await done(producer.flush())
                for at in range(1, count):
                    for producer in producers:
                        await done(producer.append_json([producer.producer_id, at]))
                for producer in producers:
                    await done(producer.close())

        with killing(scene, 60):
            play(write())
        stored = [item.value for item in scene.direct.stream("s").read_json()]
        for name in names:
            assert [at for who, at in stored if who == name] == list(range(count))
        assert len(stored) == 2 * count
        scene.assert_faults()


@async_first
def test_a_successor_takes_over(kind: str, tmp_path: Path) -> None:
    """No message of its predecessor follows its own first message."""
    with served(tmp_path, kind, "successor", faults=set(Fault) - TWICE) as scene:
        scene.direct.stream("s").create(JSON)

        async def write() -> None:
            options = {"batch_count_max": 10, "queue_count_max": 100}
            async with opened(kind, scene.proxy.url) as client:
                zombie = client.stream("s").producer("p", **options)
                successor = client.stream("s").producer("p", auto_claim=True, **options)
                held = [await done(zombie.append_json({"n": at})) for at in range(500)]
                for at in range(500):
                    await done(successor.append_json({"n": 1000 + at}))
                await done(successor.close())
                assert successor.epoch == 1
                assert isinstance(await last_word(zombie), ProducerFenced)
            stored = sum(future.exception() is None for future in held)
            found = scene.numbers()
            before, after = found[:-500], found[-500:]
            assert after == list(range(1000, 1500))
            assert before == list(range(len(before)))
            assert len(before) >= stored > 0

        play(write())


async def last_word(producer: Any) -> TailraceError:
    """The error of a producer after one more message."""
    with pytest.raises(TailraceError) as caught:  # noqa: PT012 -- either may tell
        await done(producer.append_json({"n": -1}))
        await done(producer.flush())
    with pytest.raises(TailraceError):
        await done(producer.close())
    return caught.value
