"""A receiver of webhooks on a real socket, which behaves well or badly as a test tells it."""

from __future__ import annotations

import json
import queue
import socketserver
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.together import HANG_S


@dataclass(frozen=True)
class Received:
    """A webhook as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)

    @property
    def signature(self) -> str:
        return self.headers["webhook-signature"]

    def tail(self, path: str) -> str:
        """The tail of a stream in the body."""
        (found,) = (item for item in self.content["streams"] if item["path"] == path)
        return str(found["tail_offset"])


Behaviour = Callable[[Received], bytes | None]
"""Makes the bytes of a response; None: none, and the connection stays open."""


def response(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


DONE = response(200, b'{"done":true}')
ACCEPTED = response(202, b"{}")


class Receiver:
    """A server that keeps what it receives; `behave` chooses its responses."""

    def __init__(
        self, behave: Behaviour | bytes = DONE, tls: tuple[Path, Path] | None = None
    ) -> None:
        """`tls`: a certificate and its key."""
        self.behave: Behaviour = behave if callable(behave) else lambda _: behave
        self._received: queue.Queue[Received] = queue.Queue()
        self._ended = threading.Event()
        receiver = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                receiver._handle(self)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*tls)
            listener = self._server.socket
            self._server.socket = context.wrap_socket(listener, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hook"

    def next(self) -> Received:
        """The next webhook, in the order of arrival."""
        return self._received.get(timeout=HANG_S)

    @property
    def count(self) -> int:
        """How many arrived and were not taken."""
        return self._received.qsize()

    def release(self) -> None:
        """Close the connections that have got no response."""
        self._ended.set()

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(HANG_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _handle(self, handler: socketserver.StreamRequestHandler) -> None:
        request = handler.rfile.readline().decode()
        headers: dict[str, str] = {}
        while line := handler.rfile.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = handler.rfile.read(int(headers.get("content-length", "0")))
        received = Received(request.split(" ")[1], headers, body)
        self._received.put(received)
        answer = self.behave(received)
        if answer is None:
            self._ended.wait()
        else:
            try:
                handler.wfile.write(answer)
            except OSError:
                return
