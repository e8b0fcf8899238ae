"""Writing to a stream at known times while a test reads it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

from tailrace.client import Client, Retry
from tests.support.reference import ReferenceProcess

TEXT = "text/plain"
JSON = "application/json"
BINARY = "application/octet-stream"
PATIENT = Retry(attempts_max=50, first_s=0.05, longest_s=0.2)
numbers = itertools.count()


class Before:
    """
    Actions before the requests of a client, by their number.

    As a parameter of every request it is called just before each: its action happens after the
    previous request and before this one.
    """

    def __init__(self) -> None:
        self.actions: dict[int, Callable[[], None]] = {}
        self.requests = 0

    def __call__(self) -> str:
        self.requests += 1
        self.actions.get(self.requests, lambda: None)()
        return str(self.requests)


class Writer:
    """Another client that writes from a thread while a test reads."""

    def __init__(self, server: ReferenceProcess, url: str) -> None:
        self._client = Client(server.url)
        self.stream = self._client.stream(url.partition("/v1/stream/")[2])
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.join()
        self._client.close()

    def begin(self, messages: list[bytes], content_type: str) -> None:
        """Append with pauses, so that connections are recycled in between, then close."""

        def write() -> None:
            pause = threading.Event()
            for message in messages:
                self.stream.append(message, content_type)
                pause.wait(0.05)
            self.stream.close()

        self._thread = threading.Thread(target=write)
        self._thread.start()


def payload(chunks: list[Any], content_type: str) -> Any:
    """The content of chunks: bytes, or the messages of a JSON stream."""
    if content_type != JSON:
        return b"".join(chunk.data for chunk in chunks)
    return [item for chunk in chunks if chunk.data for item in json.loads(chunk.data)]
