"""
Measure one library: `python one.py LIBRARY requests|events URL CONCURRENT COUNT`.

Prints one JSON line: bytes, seconds, and seconds of processor time. It imports no other library,
and each library is measured in its own process.
"""

import asyncio
import http.client
import importlib
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

PIECE = 64 << 10


def _load(name: str) -> Any:
    """Import by name: the libraries are not installed in the environment of `make lint`."""
    return importlib.import_module(name)


def _stdlib(url: str) -> tuple[Callable[[], bytes], Callable[[], Iterator[bytes]]]:
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}"
    local = threading.local()

    def connection() -> http.client.HTTPConnection:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(parts.netloc)
        found: http.client.HTTPConnection = local.connection
        return found

    def get() -> bytes:
        connection().request("GET", target)
        return connection().getresponse().read()

    def pieces() -> Iterator[bytes]:
        connection().request("GET", target)
        response = connection().getresponse()
        while piece := response.read1(PIECE):
            yield piece

    return get, pieces


def _urllib3(url: str) -> tuple[Callable[[], bytes], Callable[[], Iterator[bytes]]]:
    pool = _load("urllib3").PoolManager(maxsize=64)
    return (
        lambda: pool.request("GET", url).data,
        lambda: pool.request("GET", url, preload_content=False).stream(PIECE),
    )


def _httpx(url: str) -> tuple[Callable[[], bytes], Callable[[], Iterator[bytes]]]:
    client = _load("httpx").Client(timeout=60)

    def pieces() -> Iterator[bytes]:
        with client.stream("GET", url) as response:
            yield from response.iter_raw()

    return lambda: client.get(url).content, pieces


def _httpcore(url: str) -> tuple[Callable[[], bytes], Callable[[], Iterator[bytes]]]:
    pool = _load("httpcore").ConnectionPool(max_connections=64)

    def pieces() -> Iterator[bytes]:
        with pool.stream("GET", url) as response:
            yield from response.iter_stream()

    return lambda: pool.request("GET", url).content, pieces


def _session(module: str, url: str) -> tuple[Callable[[], bytes], Callable[[], Iterator[bytes]]]:
    session = _load(module).Session()
    session.mount("http://", _load(f"{module}.adapters").HTTPAdapter(pool_maxsize=64))
    return (
        lambda: session.get(url).content,
        lambda: session.get(url, stream=True).iter_content(None),
    )


BLOCKING: dict[str, Callable[[str], tuple[Callable[[], bytes], Callable[[], Iterator[bytes]]]]] = {
    "http.client": _stdlib,
    "urllib3": _urllib3,
    "requests": lambda url: _session("requests", url),
    "niquests": lambda url: _session("niquests", url),
    "httpx": _httpx,
    "httpcore": _httpcore,
}


def _threads(get: Callable[[], bytes], concurrent: int, count: int) -> int:
    got = [0] * concurrent

    def work(at: int) -> None:
        for _ in range(count // concurrent):
            got[at] += len(get())

    threads = [threading.Thread(target=work, args=(at,)) for at in range(concurrent)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(got)


async def _tasks(get: Callable[[], Awaitable[bytes]], concurrent: int, count: int) -> int:
    async def work() -> int:
        got = 0
        for _ in range(count // concurrent):
            got += len(await get())
        return got

    return sum(await asyncio.gather(*(work() for _ in range(concurrent))))


async def _aiohttp(work: str, url: str, concurrent: int, count: int) -> int:
    async with _load("aiohttp").ClientSession() as session:
        if work == "events":
            got = 0
            async with session.get(url) as response:
                while piece := await response.content.readany():
                    got += len(piece)
            return got

        async def get() -> bytes:
            async with session.get(url) as response:
                body: bytes = await response.read()
                return body

        return await _tasks(get, concurrent, count)


async def _httpx_async(work: str, url: str, concurrent: int, count: int) -> int:
    async with _load("httpx").AsyncClient(timeout=60) as client:
        if work == "events":
            got = 0
            async with client.stream("GET", url) as response:
                async for piece in response.aiter_raw():
                    got += len(piece)
            return got

        async def get() -> bytes:
            body: bytes = (await client.get(url)).content
            return body

        return await _tasks(get, concurrent, count)


ASYNC: dict[str, Callable[[str, str, int, int], Any]] = {
    "aiohttp": _aiohttp,
    "httpx async": _httpx_async,
}


def run(library: str, work: str, url: str, concurrent: int, count: int) -> int:
    """Run the measurement; returns the number of bytes received."""
    if library in ASYNC:
        got: int = asyncio.run(ASYNC[library](work, url, concurrent, count))
        return got
    get, pieces = BLOCKING[library](url)
    if work == "events":
        return sum(map(len, pieces()))
    return _threads(get, concurrent, count)


def main() -> None:
    library, work, url, concurrent, count = sys.argv[1:]
    # Before the clock starts: imports and connections.
    run(library, "requests", url.partition("&live")[0], 1, 1)
    began, used = time.perf_counter(), time.process_time()
    got = run(library, work, url, int(concurrent), int(count))
    result = {
        "bytes": got,
        "seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - used,
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
