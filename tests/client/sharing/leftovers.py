"""Helpers that find leftovers: open connections, tasks, and unhandled errors."""

from __future__ import annotations

import asyncio
import gc
import itertools
import resource
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tailrace.client import Retry
from tests.support.together import HANG_S

TEXT = "text/plain"
ONCE = Retry(attempts_max=1)
SHORT_S = 0.3
numbers = itertools.count()


def at(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def open_connections(port: int) -> int:
    """The number of open connections to a server."""
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state, *_ = line.split()
        # Established, or closed by the server alone.
        count += int(remote.partition(":")[2], 16) == port and state in ("01", "08")
    return count


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_S):
        while not what():  # noqa: ASYNC110 - what a server or a system does has no event
            await asyncio.sleep(0.01)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run in a new event loop, which must end without tasks and unhandled errors."""
    complaints: list[dict[str, Any]] = []

    async def checked() -> None:
        await main()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(debug=True) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
        runner.run(checked())
        gc.collect()
    gc.collect()
    assert complaints == []


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def ended(task: asyncio.Task[Any]) -> BaseException | None:
    """The error of a task, or None; fails if the task does not end."""
    await asyncio.wait([task], timeout=10)
    if not task.done():
        await cancelled(task)
        pytest.fail("it waits for ever")
    return task.exception()


async def drain(chunks: Any) -> None:
    async for _ in chunks:
        pass


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """A server that sends the same bytes on each connection, and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    end, _ = listener.accept()
                    ends.append(end)
                    end.recv(65536)
                    end.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # A blocked `accept` does not notice that its socket was closed.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for end in ends:
                end.close()


@contextmanager
def many_files(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 200:
        pytest.skip("this system does not allow so many open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    try:
        with ExitStack() as files:
            for _ in range(count):
                files.enter_context(Path("/dev/null").open("rb"))
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
