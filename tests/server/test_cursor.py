"""The cursor of a long-poll (§8.1) is that of the interval in which its response is sent."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.engine.engine import Engine, Outcome
from tailrace.engine.memory import MemoryStore
from tailrace.protocol.cursor import EPOCH_MS, INTERVAL_MS
from tailrace.protocol.state import Append, Create
from tailrace.server.message import Request, Response
from tailrace.server.service import Service
from tailrace.server.settings import Settings

KEY = b"\0s"
TEXT = "text/plain"


async def _cursor_after(query: bytes, intervals: int, *, appends: bool) -> tuple[int, int]:
    """The status and the cursor of a long-poll that waits for some intervals."""
    now = EPOCH_MS + 100 * INTERVAL_MS
    engine = Engine(MemoryStore(), clock=lambda: now)
    service = Service(engine, Settings(engine="memory"))
    service.live._clock = lambda: now
    loop = asyncio.get_running_loop()

    async def submit(command: Append | Create) -> None:
        done: asyncio.Future[Outcome] = loop.create_future()
        engine.submit(KEY, command, done.set_result)
        await done

    await submit(Create(id=engine.new_id(), content_type=TEXT, body=b"x"))
    replied: asyncio.Future[Response] = loop.create_future()
    query = b"offset=now&live=long-poll" + query
    service.handle(Request("GET", b"/v1/stream/s", query, {}, b""), replied.set_result)
    now += intervals * INTERVAL_MS
    if appends:
        await submit(Append(b"y", TEXT))
    else:
        service.drain()
    response = await replied
    await service.close()
    await engine.close()
    return response.status, int(dict(response.headers)[b"Stream-Cursor"])


@pytest.mark.parametrize(("appends", "status"), [(False, 204), (True, 200)])
def test_it_is_of_the_interval_of_the_response(appends: bool, status: int) -> None:
    for query in (b"", b"&cursor=100"):
        assert asyncio.run(_cursor_after(query, 3, appends=appends)) == (status, 103)


@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize("cursor", [101, 500])
def test_it_is_greater_than_that_of_the_request(appends: bool, cursor: int) -> None:
    _, found = asyncio.run(_cursor_after(b"&cursor=%d" % cursor, 1, appends=appends))
    assert found > cursor
