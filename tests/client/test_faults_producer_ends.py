"""
Producers that fail: every caller gets the error, and a prefix of the messages is stored.

Goal: after an error, a caller knows exactly what was acknowledged, and the stream has no gap.
Method: write through a proxy with faults (`FaultProxy`), remove the stream or the server in the
middle, and compare what was acknowledged with what is stored.
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
from tests.client.scenario import JSON, RETRY, Scene, done, opened, play, served
from tests.client.tiers import async_first, sync_first
from tests.support.fault_plan import Fault


async def write_until(
    end: Callable[[], object], kind: str, scene: Scene, retry: Retry = RETRY
) -> tuple[list[int], list[int], TailraceError]:
    """
    Write until an event ends it: what was acknowledged, what was not, and the error.

    The error is the same from append, flush, close, futures and the callback.
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


def assert_prefix_stored(scene: Scene, stored: list[int], lost: list[int]) -> None:
    """All acknowledged messages, perhaps some more, and no gap."""
    found = scene.numbers()
    assert found == list(range(len(found)))
    assert max(stored) < len(found) <= len(stored) + len(lost)


@sync_first
def test_a_stream_that_another_client_closes(kind: str, tmp_path: Path) -> None:
    with served(tmp_path, kind, "closed") as scene:
        stream = scene.direct.stream("s")
        stream.create(JSON)

        async def write() -> None:
            stored, lost, error = await write_until(stream.close, kind, scene)
            assert isinstance(error, StreamClosed)
            assert_prefix_stored(scene, stored, lost)

        play(write())


@async_first
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


@sync_first
def test_a_stream_that_is_deleted_and_created_again(kind: str, tmp_path: Path) -> None:
    """The new stream lacks the earlier batches: it must not take the next ones."""
    # A late duplicate of the first batch would be accepted by the new stream.
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


@async_first
def test_a_server_that_stays_down(kind: str, tmp_path: Path) -> None:
    """After its restart it has everything that was acknowledged."""
    with served(tmp_path, kind, "down", patient=False) as scene, ExitStack() as calm:
        scene.direct.stream("s").create(JSON)

        def end() -> None:
            # From now on only the server fails.
            calm.enter_context(scene.proxy.calm())
            scene.server.kill()

        async def write() -> None:
            retry = Retry(attempts_max=12, first_s=0.01, longest_s=0.05)
            stored, lost, error = await write_until(end, kind, scene, retry)
            assert isinstance(error, Unreachable)
            scene.server.start()
            assert_prefix_stored(scene, stored, lost)

        play(write())
