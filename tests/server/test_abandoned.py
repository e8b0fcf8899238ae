"""A response whose client has disconnected is aborted, and releases what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.server.handlers import bootstrap
from tailrace.server.settings import Settings
from tailrace.server.transports import asgi
from tailrace.server.transports.asgi import TailraceApp, create_app

MIB = 1 << 20
TEXT = [(b"content-type", b"text/plain")]
OFFSET = f"{1:016d}_{MIB:016d}"

Message = MutableMapping[str, Any]


class Mounted:
    """The ASGI app, called directly as an ASGI server calls it."""

    def __init__(self, data_dir: Path) -> None:
        self.app: TailraceApp = create_app(Settings(data_dir=data_dir))

    def start(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        send: Callable[[Message], Awaitable[None]] | None = None,
    ) -> asyncio.Task[None]:
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def ignore(_message: Message) -> None: ...

        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(),
            "root_path": "", "scheme": "http", "query_string": b"",
            "headers": [(b"host", b"test"), *TEXT],
        }  # fmt: skip
        return asyncio.ensure_future(self.app(scope, receive, send or ignore))

    @property
    def pinned(self) -> dict[int, list[int]]:
        assert self.app._service is not None
        return self.app._service.engine.pins._held

    @property
    def running_tasks(self) -> int:
        assert self.app._service is not None
        return len(self.app._service._tasks)

    async def fill(self) -> None:
        """Create a stream of several slices, with a snapshot of several chunks."""
        await self.start("PUT", "/bucket")
        await self.start("PUT", "/bucket/s", b"x" * MIB)
        await self.start("PUT", f"/bucket/s/snapshot/{OFFSET}", b"s" * 3 * MIB)
        for _ in range(4):
            await self.start("POST", "/bucket/s", b"y" * MIB)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - no event marks this state
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("turns", [1, 2, 5, 20])
def test_a_cancelled_bootstrap_releases_its_view(tmp_path: Path, turns: int) -> None:
    """Cancelled during the boundary search, before sending, and while sending."""

    async def run() -> None:
        mounted = Mounted(tmp_path / "data")
        await mounted.fill()
        work = mounted.start("GET", "/bucket/s/bootstrap")
        for _ in range(turns):
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await _until(lambda: not mounted.pinned and not mounted.running_tasks)
        await mounted.app.close()

    asyncio.run(run())


def test_a_bootstrap_keeps_its_view_until_a_client_that_does_not_read_disconnects(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        mounted = Mounted(tmp_path / "data")
        await mounted.fill()
        stuck = asyncio.Event()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                stuck.set()
                await asyncio.Event().wait()

        work = mounted.start("GET", "/bucket/s/bootstrap", send=send)
        await stuck.wait()
        assert mounted.pinned
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await _until(lambda: not mounted.pinned and not mounted.running_tasks)
        await mounted.app.close()

    asyncio.run(run())


def test_shutdown_cancels_running_bootstraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endless boundary search is cancelled before the store is closed."""

    async def run() -> None:
        mounted = Mounted(tmp_path / "data")
        await mounted.fill()
        # Every boundary is found in the content, so the search never ends.
        monkeypatch.setattr(bootstrap, "_new_boundary", lambda: b"yyyyyyyy")
        work = mounted.start("GET", "/bucket/s/bootstrap")
        await _until(lambda: mounted.running_tasks == 1)
        problems: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
        await mounted.app.close()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert problems == []

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/bucket/s/bootstrap", f"/bucket/s/snapshot/{OFFSET}"])
@pytest.mark.parametrize("stop", [False, True])
def test_a_response_that_is_not_read_releases_its_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, stop: bool
) -> None:
    """After the deadline, or after `drain_s` if the server stops; it never looks complete."""
    monkeypatch.setattr(asgi, "WRITE_STALL_S", 60.0 if stop else 0.1)

    async def run() -> None:
        mounted = Mounted(tmp_path)
        mounted.app.settings = msgspec.structs.replace(mounted.app.settings, drain_s=0.1)
        await mounted.fill()
        began = asyncio.Event()

        async def stall(message: Message) -> None:
            if message["type"] == "http.response.body":
                began.set()
                await asyncio.Event().wait()

        task = mounted.start("GET", path, send=stall)
        await began.wait()
        assert mounted.pinned
        if stop:
            mounted.app._stop()
        # The server closes the connection of an app that raises.
        await asyncio.wait([task], timeout=20)
        assert isinstance(task.exception(), TimeoutError if stop else asgi._AbortedError)
        await _until(lambda: not mounted.pinned)
        await mounted.app.close()

    asyncio.run(run())
