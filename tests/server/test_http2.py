"""HTTP/2: the ASGI app on a server that supports it, and a client that uses only HTTP/2."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import Authority
from tests.support.server import AsgiServerProcess

TEXT = {"Content-Type": "text/plain"}


class Http2ServerProcess(AsgiServerProcess):
    """The ASGI app, mounted under a path, run by hypercorn over TLS."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        super().__init__(directory / "data")
        self._certificate, self._key = authority.issue("http2")

    def _command(self, port: int) -> list[str]:
        return [
            *(sys.executable, "-m", "hypercorn", "tests.support.asgi_app:app"),
            *("--bind", f"127.0.0.1:{port}", "--workers", "0"),
            *("--certfile", str(self._certificate), "--keyfile", str(self._key)),
        ]

    def _port_in(self, line: str) -> int | None:
        match = re.search(r"Running on https://127\.0\.0\.1:(\d+)", line)
        return int(match[1]) if match else None

    @property
    def url(self) -> str:
        return super().url.replace("http://", "https://", 1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Http2ServerProcess]:
    with Http2ServerProcess(tmp_path_factory.mktemp("http2"), authority) as started:
        yield started


def client(server: Http2ServerProcess, authority: Authority) -> httpx.AsyncClient:
    """A client with one connection that uses only HTTP/2."""
    return httpx.AsyncClient(
        base_url=server.url,
        http1=False,
        http2=True,
        verify=authority.client_context(),
        limits=httpx.Limits(max_connections=1),
        timeout=30,
    )


def test_each_kind_of_request(server: Http2ServerProcess, authority: Authority) -> None:
    """With bodies large enough for flow control."""
    asyncio.run(_requests(server, authority))


async def _requests(server: Http2ServerProcess, authority: Authority) -> None:
    body = b"0123456789abcdef" * 65536
    async with client(server, authority) as http2:
        created = await http2.put("/v1/stream/h2", headers=TEXT)
        assert (created.http_version, created.status_code) == ("HTTP/2", 201)
        assert created.headers["location"] == f"{server.url}/v1/stream/h2"
        appended = await http2.post("/v1/stream/h2", content=body, headers=TEXT)
        assert appended.status_code == 204
        read = await http2.get("/v1/stream/h2")
        assert read.content == body
        assert read.headers["stream-next-offset"] == appended.headers["stream-next-offset"]
        head = await http2.head("/v1/stream/h2")
        assert (head.status_code, head.content) == (200, b"")
        assert (await http2.put("/h2-bucket")).status_code == 201
        assert (await http2.put("/h2-bucket/s", content=b"x", headers=TEXT)).status_code == 201
        tail = (await http2.head("/h2-bucket/s")).headers["stream-next-offset"]
        published = await http2.put(f"/h2-bucket/s/snapshot/{tail}", content=body)
        assert published.status_code == 204
        assert (await http2.get(f"/h2-bucket/s/snapshot/{tail}")).content == body
        refused = await http2.get("/v1/stream/none")
        assert (refused.status_code, refused.json()["code"]) == (404, "stream-not-found")
        assert (await http2.delete("/v1/stream/h2")).status_code == 204


# A connection has at most 100 streams, and the writer needs one. The client library is slow.
@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_many_live_readers_share_a_connection_with_a_writer(
    server: Http2ServerProcess, authority: Authority, count: int
) -> None:
    """All readers wait on one connection, and all receive the message."""
    asyncio.run(_live(server, authority, count))


async def _live(server: Http2ServerProcess, authority: Authority, count: int) -> None:
    path = f"/v1/stream/h2-live-{count}"
    async with client(server, authority) as http2:
        await http2.put(path, headers=TEXT)
        ready = asyncio.Semaphore(0)

        async def follow() -> str:
            async with http2.stream("GET", f"{path}?offset=-1&live=sse") as response:
                assert response.http_version == "HTTP/2"
                ready.release()
                return "".join([text async for text in response.aiter_text()])

        async def poll() -> bytes:
            ready.release()
            response = await http2.get(f"{path}?offset=-1&live=long-poll")
            return response.content

        readers = [asyncio.ensure_future(follow()) for _ in range(count)]
        polls = [asyncio.ensure_future(poll()) for _ in range(count)]
        for _ in range(2 * count):
            await ready.acquire()
        end = {**TEXT, "Stream-Closed": "true"}
        response = await http2.post(path, content=b"hello", headers=end)
        assert response.status_code == 204
        for text in await asyncio.gather(*readers):
            assert "event: data\ndata:hello\n" in text
            assert '"streamClosed":true' in text
        assert set(await asyncio.gather(*polls)) == {b"hello"}
