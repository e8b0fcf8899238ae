"""
Readers over a faulty network receive each message once and in order.

Goal: the guarantees of `tail` and `read`. Method: a writer appends numbers to the server itself. A
reader receives them through a proxy that cuts, delays and rejects by a seed (`FaultProxy`), from a
server that ends its event streams every half second and is killed repeatedly. Then compare what
arrived with what was written.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.client import AsyncClient, Client, Retry
from tests.client.tiers import async_first, slow
from tests.support.alongside import Wait, alongside
from tests.support.chance import seeded
from tests.support.fault_plan import READ_FAULTS, SSE_FAULTS, Fault, Plan
from tests.support.fault_proxy import FaultProxy
from tests.support.server import ServerProcess

JSON = "application/json"
BINARY = "application/octet-stream"
PATH = "s"
RETRY = Retry(attempts_max=30, first_s=0.01, longest_s=0.2)
# Small chunks: many responses and events, so that many of them can be cut.
OPTIONS = ("--sse-s", "0.5", "--long-poll-s", "0.5", "--chunk-bytes", "2000",
           "--read-bytes-max", "2000")  # fmt: skip


def read_into(
    found: list[Any], kind: str, url: str, method: str, offset: str = "-1", most: int | None = None
) -> None:
    """Collect the items of a new client, to their end or up to `most`."""
    end = None if most is None else len(found) + most

    async def read() -> None:
        async with (
            AsyncClient(url, retry=RETRY) as client,
            aclosing(getattr(client.stream(PATH), method)(offset)) as items,
        ):
            async for item in items:
                found.append(item)
                if len(found) == end:
                    return

    if kind == "async":
        asyncio.run(read())
        return
    with (
        Client(url, retry=RETRY) as client,
        closing(getattr(client.stream(PATH), method)(offset)) as items,
    ):
        for item in items:
            found.append(item)
            if len(found) == end:
                return


def assert_faults(proxy: FaultProxy) -> None:
    """Every fault happened; otherwise the test proves nothing."""
    assert not [fault.name for fault in READ_FAULTS if not proxy.done[fault]]


@pytest.mark.slow
def test_a_tail_of_100_000_messages(kind: str, tmp_path: Path) -> None:
    """Some are stored before the reader starts; then the writer stays close ahead of it."""
    before, count, step, ahead = 20_000, 100_000, 2_000, 6_000
    kills = {40_000, 60_000, 80_000}
    found: list[Any] = []
    with (
        seeded("faults", kind) as chance,
        ServerProcess(tmp_path / "data", *OPTIONS) as server,
        Client(server.url, retry=RETRY) as client,
    ):
        stream = client.stream(PATH)
        stream.create(JSON)
        stream.append_json(*range(before))

        def write(wait: Wait) -> None:
            wait(lambda: len(found) == before)
            # The reader is at the tail, and follows from here on.
            for at in range(before, count, step):
                wait(lambda at=at: len(found) >= at - ahead)  # type: ignore[misc]
                if at in kills:
                    server.restart()
                stream.append_json(*range(at, at + step))
            stream.close()

        plan = Plan(chance.random(), retry_after_s=(None, 0, 1))
        with FaultProxy(server.url, plan) as proxy:
            with alongside(write):
                read_into(found, kind, proxy.url, "tail_json")
            assert [item.value for item in found] == list(range(count))
            assert found[-1].next_offset == stream.head().next_offset
            assert_faults(proxy)
            assert not [fault.name for fault in SSE_FAULTS if not proxy.done_sse[fault]]
            assert proxy.done_sse[Fault.CUT_BODY] > 10


@pytest.mark.parametrize("refused", [None, slow(406), slow(501)])
def test_a_tail_of_bytes(kind: str, refused: int | None, tmp_path: Path) -> None:
    """Over SSE in base64, or by long-polling if SSE is rejected."""
    count, step, ahead = 2_000, 20, 60
    written: list[bytes] = []
    found: list[Any] = []
    with (
        seeded("faults", kind, refused) as chance,
        ServerProcess(tmp_path / "data", *OPTIONS) as server,
        Client(server.url, retry=RETRY) as client,
        FaultProxy(server.url, Plan(chance.random()), refuse_sse=refused) as proxy,
    ):
        stream = client.stream(PATH)
        stream.create(BINARY)

        def write(wait: Wait) -> None:
            """At least this many messages, and more until the reader has met every fault."""
            faults = READ_FAULTS if refused else SSE_FAULTS
            seen = proxy.done if refused else proxy.done_sse
            while len(written) < count or not all(seen[fault] for fault in faults):
                size = 16 * (len(written) - ahead)
                wait(lambda size=size: sum(len(chunk.data) for chunk in found) >= size)  # type: ignore[misc]
                if len(written) == count // 2:
                    server.restart()
                messages = [b"message %07d\x00" % (len(written) + at) for at in range(step)]
                stream.append(b"".join(messages))
                written.extend(messages)
            stream.close()

        with alongside(write):
            read_into(found, kind, proxy.url, "tail")
        assert b"".join(chunk.data for chunk in found) == b"".join(written)
        assert [chunk.closed for chunk in found] == [False] * (len(found) - 1) + [True]
        assert found[-1].next_offset == stream.head().next_offset
        if refused:
            assert proxy.own_responses[refused, None] == 1


@pytest.mark.parametrize(
    ("kind", "method"),
    [("sync", "read"), ("async", "read_json"), slow("async", "read"), slow("sync", "read_json")],
)
def test_a_read_up_to_the_tail(kind: str, method: str, tmp_path: Path) -> None:
    """Also if the body of a response is cut: its beginning was not passed on."""
    numbers = list(range(20_000))
    found: list[Any] = []
    with (
        seeded("faults", kind, method) as chance,
        ServerProcess(tmp_path / "data", *OPTIONS) as server,
        Client(server.url) as client,
    ):
        stream = client.stream(PATH)
        if method == "read_json":
            stream.create(JSON)
            stream.append_json(*numbers)
        else:
            stream.create(BINARY)
            for at in range(0, len(numbers), 100):
                stream.append(b"".join(b"%07d" % number for number in numbers[at : at + 100]))
        with FaultProxy(server.url, Plan(chance.random())) as proxy:
            read_into(found, kind, proxy.url, method)
            assert_faults(proxy)
        if method == "read_json":
            assert [item.value for item in found] == numbers
        else:
            data = b"".join(chunk.data for chunk in found)
            assert data == b"".join(b"%07d" % number for number in numbers)
            assert [chunk.up_to_date for chunk in found] == [False] * (len(found) - 1) + [True]


@async_first
def test_each_reader_resumes_where_the_last_one_stopped(kind: str, tmp_path: Path) -> None:
    """New clients, some messages each, from the offset of the last message."""
    count, step, ahead = 4_000, 100, 500
    found: list[Any] = []
    places: list[str] = ["-1"]
    with (
        seeded("faults", "resume", kind) as chance,
        ServerProcess(tmp_path / "data", *OPTIONS) as server,
        Client(server.url, retry=RETRY) as client,
    ):
        stream = client.stream(PATH)
        stream.create(JSON)

        def write(wait: Wait) -> None:
            for at in range(0, count, step):
                wait(lambda at=at: len(found) >= at - ahead)  # type: ignore[misc]
                if at == count // 2:
                    server.restart()
                stream.append_json(*range(at, at + step))
            stream.close()

        with FaultProxy(server.url, Plan(chance.random())) as proxy:
            with alongside(write):
                while len(found) < count:
                    most = min(chance.randint(1, 250), count - len(found))
                    read_into(found, kind, proxy.url, "tail_json", places[-1], most)
                    places.append(found[-1].next_offset)
            assert [item.value for item in found] == list(range(count))
            read_into(found, kind, proxy.url, "tail_json", places[-1])
            assert len(found) == count, "the stream is closed: nothing comes after its last message"
            assert_faults(proxy)
    assert sum("," in place for place in places) > 5
    assert sum("," not in place for place in places) > 1
