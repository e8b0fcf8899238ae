"""Callable headers and parameters: fresh tokens, and errors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tailrace.client import Client
from tests.client.conftest import connected
from tests.client.sharing.leftovers import TEXT, numbers, open_connections
from tests.client.tiers import slow
from tests.support.server import ServerProcess
from tests.support.together import wait_until


class Tokens:
    """A new token each time; raises at call number `fails_at`."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.given = 0
        self.fails_at = fails_at

    def __call__(self) -> str:
        self.given += 1
        if self.given == self.fails_at:
            raise LookupError("no token today")
        return f"token-{self.given}"

    async def later(self) -> str:
        await asyncio.sleep(0)
        return self()


CASES = [
    *(("sync", "plain", "headers"), ("async", "awaitable", "params")),
    *(slow("sync", "plain", "params"), slow("async", "awaitable", "headers")),
    *(slow("async", "plain", "headers"), slow("async", "plain", "params")),
]


@pytest.mark.parametrize(("kind", "source", "place"), CASES)
class TestCallables:
    def options(self, tokens: Tokens, source: str, place: str) -> dict[str, Any]:
        return {place: {"X-Token": tokens.later if source == "awaitable" else tokens}}

    def test_it_is_called_for_each_request(
        self, kind: str, source: str, place: str, steady: ServerProcess
    ) -> None:
        tokens = Tokens()
        with connected(kind, steady.url, **self.options(tokens, source, place)) as client:
            stream = client.stream(f"tokens/{next(numbers)}")
            stream.create(TEXT, body=b"x")
            stream.head()
            list(stream.read())
            stream.delete()
        assert tokens.given == 4

    def test_it_is_called_for_each_reconnect(
        self, kind: str, source: str, place: str, server: ServerProcess
    ) -> None:
        """The server ends event streams every half second; a tail reconnects with a new token."""
        tokens = Tokens()
        url = f"http://127.0.0.1:{server.port}"
        with (
            connected(kind, url, **self.options(tokens, source, place)) as client,
            Client(url) as writer,
        ):
            path = f"tokens/{place}/{source}/{next(numbers)}"
            client.stream(path).create(TEXT, body=b"x")
            tail = client.stream(path).tail()
            assert next(tail).data == b"x"

            def close_in_the_end() -> None:
                # The creation, the catch-up, and at least two event streams.
                wait_until(lambda: tokens.given >= 4)
                writer.stream(path).close()

            thread = threading.Thread(target=close_in_the_end)
            thread.start()
            try:
                assert [chunk.closed for chunk in tail] == [True]
            finally:
                thread.join()
        assert tokens.given >= 4

    def test_its_error_reaches_the_caller(
        self, kind: str, source: str, place: str, steady: ServerProcess
    ) -> None:
        """The client can be used afterwards."""
        tokens = Tokens(fails_at=2)
        with connected(kind, steady.url, **self.options(tokens, source, place)) as client:
            stream = client.stream(f"tokens/{next(numbers)}")
            stream.create(TEXT, body=b"x")
            with pytest.raises(LookupError, match="no token today"):
                stream.append(b"y", TEXT)
            stream.append(b"z", TEXT)
            assert open_connections(steady.port) == 1
            assert b"".join(chunk.data for chunk in stream.read()) == b"xz"
        wait_until(lambda: open_connections(steady.port) == 0)

    def test_its_error_ends_a_tail(
        self, kind: str, source: str, place: str, steady: ServerProcess
    ) -> None:
        """Between the catch-up and the event stream; it is not retried."""
        tokens = Tokens(fails_at=3)
        with connected(kind, steady.url, **self.options(tokens, source, place)) as client:
            stream = client.stream(f"tokens/{next(numbers)}")
            stream.create(TEXT, body=b"x")
            tail = stream.tail()
            assert next(tail).data == b"x"
            with pytest.raises(LookupError, match="no token today"):
                next(tail)
        assert tokens.given == 3
        wait_until(lambda: open_connections(steady.port) == 0)

    def test_its_error_ends_a_producer(
        self, kind: str, source: str, place: str, steady: ServerProcess
    ) -> None:
        tokens = Tokens(fails_at=2)
        with connected(kind, steady.url, **self.options(tokens, source, place)) as client:
            stream = client.stream(f"tokens/{next(numbers)}")
            stream.create("application/json")
            producer = stream.producer()
            producer.append_json(1)
            with pytest.raises(LookupError, match="no token today"):
                producer.flush()
            assert producer.undelivered() == [b"1"]
            with pytest.raises(LookupError):
                producer.close()


class TestWhatCannotBeSent:
    @pytest.mark.parametrize("value", [7, "a\nb", None], ids=["number", "two lines", "nothing"])
    def test_an_invalid_header(self, kind: str, steady: ServerProcess, value: Any) -> None:
        """The caller's error, told as one; the connection that was opened for it is closed."""
        with (
            connected(kind, steady.url, headers={"X-Token": lambda: value}) as client,
            pytest.raises((TypeError, ValueError)),
        ):
            client.stream("s").head()
        wait_until(lambda: open_connections(steady.port) == 0)

    def test_an_awaitable_for_a_blocking_client(self, steady: ServerProcess) -> None:
        with (
            Client(steady.url, headers={"X-Token": Tokens().later}) as client,
            pytest.raises(TypeError, match="AsyncClient"),
        ):
            client.stream("s").head()
        assert open_connections(steady.port) == 0
