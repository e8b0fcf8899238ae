"""A server that does not respond, or stops in the middle, is unreachable after `timeout_s`."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from tailrace.client import AsyncClient, Client, TooLarge, Unreachable
from tests.client.conftest import connected
from tests.client.sharing.leftovers import (
    ONCE,
    SHORT_S,
    answering,
    at,
    ended,
    open_connections,
    run,
    until,
)
from tests.client.tiers import sync_first
from tests.support.together import wait_until

LARGE = bytes(32 << 20)


class TestTimeouts:
    def test_a_server_that_never_responds(self, kind: str, silent: int) -> None:
        for operation in ("append", "head", "create", "delete", "bootstrap"):
            with connected(kind, at(silent), timeout_s=SHORT_S, retry=ONCE) as client:
                arguments = (b"x",) if operation == "append" else ()
                with pytest.raises(Unreachable) as caught:
                    getattr(client.stream("s"), operation)(*arguments)
                assert caught.value.sent
            wait_until(lambda: open_connections(silent) == 0)

    def test_a_server_that_never_responds_to_an_iteration(self, kind: str, silent: int) -> None:
        for operation in ("read", "tail", "tail_json", "bootstrap_parts"):
            with (
                connected(kind, at(silent), timeout_s=SHORT_S, retry=ONCE) as client,
                pytest.raises(Unreachable),
            ):
                next(getattr(client.stream("s"), operation)())
            wait_until(lambda: open_connections(silent) == 0)

    def test_a_server_that_does_not_read(self, silent: int) -> None:
        """The body exceeds the socket buffers: the append cannot be sent."""
        with (
            Client(at(silent), timeout_s=SHORT_S, retry=ONCE) as client,
            pytest.raises(Unreachable),
        ):
            client.stream("s").append(LARGE)
        assert open_connections(silent) == 0

    def test_a_server_that_does_not_read_while_others_wait(self) -> None:
        async def main() -> None:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
                async with AsyncClient(at(port), timeout_s=SHORT_S, retry=ONCE) as client:
                    task = asyncio.create_task(client.stream("s").append(LARGE))
                    assert isinstance(await ended(task), Unreachable)
            # A transport holds on to what it has not sent yet for as long as the server is there.
            await until(lambda: open_connections(port) == 0)

        run(main)

    @pytest.mark.parametrize("half", [b"HTTP/1.1 200 OK\r\n", b"", b"x"], ids=["head", "body", "+"])
    def test_a_server_that_stops_in_the_middle(self, kind: str, half: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nStream-Next-Offset: 1\r\n\r\n"
        with (
            answering(half if half.startswith(b"HTTP") else head + half) as port,
            connected(kind, at(port), timeout_s=SHORT_S, retry=ONCE) as client,
        ):
            with pytest.raises(Unreachable):
                list(client.stream("s").read())
            wait_until(lambda: open_connections(port) == 0)


@sync_first
def test_an_upload_that_makes_progress_may_exceed_the_timeout(kind: str) -> None:
    """The server reads slowly, for longer than the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        reader = threading.Thread(target=_read_slowly, args=(listener, 2 * SLOW_S))
        reader.start()
        port = listener.getsockname()[1]
        with connected(kind, at(port), timeout_s=SLOW_S, retry=ONCE) as client:
            assert client.stream("s").append(b"x" * (24 << 20)).next_offset == "1"
        reader.join()


def test_a_response_before_the_end_of_the_upload_is_read() -> None:
    """A proxy rejects a large body and closes the connection. (aiohttp may miss it.)"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=_refuse, args=(listener,))
        server.start()
        port = listener.getsockname()[1]
        with Client(at(port), retry=ONCE) as client, pytest.raises(TooLarge):
            client.stream("s").append(b"x" * (24 << 20))
        server.join()


SLOW_S = 1.0


def _read_slowly(listener: socket.socket, for_s: float) -> None:
    connection, _ = listener.accept()
    with connection:
        left = 24 << 20
        end = time.monotonic() + for_s
        while left > 0:
            if time.monotonic() < end:
                time.sleep(0.02)
            left -= len(connection.recv(1 << 18))
        connection.sendall(b"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 1\r\n\r\n")


def _refuse(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(
            b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
