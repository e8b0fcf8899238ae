"""
Producers that cannot go on: everybody is told why, and what is stored is a beginning of the whole.

Goal: after an error, a caller knows exactly what was acknowledged, and nothing stands in the stream
without what comes before it. Method: write through a proxy with faults (`FaultProxy`), take the
stream or the server away in the middle, and compare what was told with what the server has.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tailrace.client import (
    NotFound,
    ProducerGap,
    Retry,
    StreamClosed,
    TailraceError,
    Unreachable,
)
from tests.client.scenes import JSON, RETRY, Scene, done, opened, play, served
from tests.support.fault_plan import Fault


async def write_until(
    end: Callable[[], object], kind: str, scene: Scene, retry: Retry = RETRY
) -> tuple[list[int], list[int], TailraceError]:
    """
    Write, and put an end to it in the middle: what was acknowledged, what was not, and why.

    The error is the same wherever it is told: by append, flush, close, futures and the callback.
    """
    told: list[Exception] = []
    held: list[Any] = []
    has_ended = False
    error: TailraceError | None = None
    async with opened(kind, scene.proxy.url, retry) as client:
        producer = client.stream("s").producer(
            batch_count_max=20, queue_count_max=200, on_error=told.append
        )
        while error is None:
            if scene.proxy.exchanges >= 30 and not has_ended:
                end()
                has_ended = True
            try:
                held.append(await done(producer.append_json({"n": len(held)})))
            except TailraceError as failed:
                error = failed
        for operation in (producer.flush, producer.close_stream, producer.close):
            with pytest.raises(TailraceError) as again:
                await done(operation())
            assert again.value is error
        assert told == [error]
    assert has_ended
    assert all(future.done() for future in held)
    stored = [at for at, future in enumerate(held) if future.exception() is None]
    lost = [at for at, future in enumerate(held) if future.exception() is not None]
    assert stored and lost
    assert all(held[at].exception() is error for at in lost)
    assert producer.undelivered() == [b'{"n":%d}' % at for at in lost]
    return stored, lost, error


def assert_a_beginning(scene: Scene, stored: list[int], lost: list[int]) -> None:
    """All that was acknowledged, perhaps some of the rest, and no gap."""
    found = scene.numbers()
    assert found == list(range(len(found)))
    assert max(stored) < len(found) <= len(stored) + len(lost)


def test_a_stream_that_is_closed_by_somebody_else(kind: str, tmp_path: Path) -> None:
    with served(tmp_path, kind, "closed") as scene:
        stream = scene.direct.stream("s")
        stream.create(JSON)

        async def write() -> None:
            stored, lost, error = await write_until(stream.close, kind, scene)
            assert isinstance(error, StreamClosed)
            assert_a_beginning(scene, stored, lost)

        play(write())


def test_a_stream_that_is_deleted(kind: str, tmp_path: Path) -> None:
    with served(tmp_path, kind, "deleted") as scene:
        stream = scene.direct.stream("s")
        stream.create(JSON)

        async def write() -> None:
            _, _, error = await write_until(stream.delete, kind, scene)
            assert isinstance(error, NotFound)
            with pytest.raises(NotFound):
                stream.head()

        play(write())


def test_a_stream_that_is_deleted_and_made_anew(kind: str, tmp_path: Path) -> None:
    """It has none of the batches before: the next ones would stand there without them."""
    # A first batch that comes once more, late, is a first one to the new stream.
    faults = set(Fault) - {Fault.TWICE_LATE}
    with served(tmp_path, kind, "anew", faults=faults) as scene:
        stream = scene.direct.stream("s")
        stream.create(JSON)

        def replace() -> None:
            stream.delete()
            stream.create(JSON)

        async def write() -> None:
            _, _, error = await write_until(replace, kind, scene)
            assert isinstance(error, NotFound | ProducerGap)
            assert scene.numbers() == []

        play(write())


def test_a_server_that_stays_down(kind: str, tmp_path: Path) -> None:
    """When it is back it has everything that was acknowledged."""
    with served(tmp_path, kind, "down", patient=False) as scene, ExitStack() as calm:
        scene.direct.stream("s").create(JSON)

        def end() -> None:
            # From now on it is the server alone that fails.
            calm.enter_context(scene.proxy.calm())
            scene.server.kill()

        async def write() -> None:
            retry = Retry(attempts_max=12, first_s=0.01, longest_s=0.05)
            stored, lost, error = await write_until(end, kind, scene, retry)
            assert isinstance(error, Unreachable)
            scene.server.start()
            assert_a_beginning(scene, stored, lost)

        play(write())
