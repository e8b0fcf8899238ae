"""Both clients behind one interface, and a server for them."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tailrace.client import AsyncClient, AsyncProducer, Client
from tests.support.server import ServerProcess

_names = itertools.count()


class Awaited:
    """A blocking interface to an asynchronous object."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self._inner = inner
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            made = found(*args, **kwargs)
            if inspect.isawaitable(made):
                made = self._runner.run(_wait(made))
            if isinstance(made, AsyncIterator):
                return self._each(made)
            return Awaited(made, self._runner) if isinstance(made, AsyncProducer) else made

        return call

    def stream(self, path: str) -> Awaited:
        return Awaited(self._inner.stream(path), self._runner)

    def bucket(self, bucket_id: str) -> Awaited:
        return Awaited(self._inner.bucket(bucket_id), self._runner)

    def subscription(self, subscription_id: str) -> Awaited:
        return Awaited(self._inner.subscription(subscription_id), self._runner)

    @property
    def subscriptions(self) -> Awaited:
        return Awaited(self._inner.subscriptions, self._runner)

    def __enter__(self) -> Awaited:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._runner.run(self._inner.__aexit__(*raised))

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._runner.run(_wait(anext(items)))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(_wait(items.aclose()))  # type: ignore[attr-defined]


async def _wait(made: Any) -> Any:
    return await made


Connect = Callable[..., Any]


@contextmanager
def connected(kind: str, url: str, **options: Any) -> Iterator[Any]:
    """A client of one kind, with a blocking interface."""
    if kind == "sync":
        with Client(url, **options) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        awaited = Awaited(AsyncClient(url, **options), runner)
        try:
            yield awaited
        finally:
            awaited.close()


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Recycles SSE connections often, so that every tail reconnects; sends small chunks."""
    options = ("--sse-s", "0.5", "--long-poll-s", "0.5", "--chunk-bytes", "1000",
               "--read-bytes-max", "1000")  # fmt: skip
    with ServerProcess(tmp_path_factory.mktemp("client"), *options) as running:
        yield running


@pytest.fixture
def client(kind: str, server: ServerProcess) -> Iterator[Any]:
    with connected(kind, f"http://127.0.0.1:{server.port}") as made:
        yield made


@pytest.fixture
def stream(client: Any) -> Any:
    """A unique name."""
    return client.stream(f"client/{next(_names)}")
