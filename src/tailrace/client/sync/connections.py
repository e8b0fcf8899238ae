"""The connections of the blocking driver, over the standard library's `http.client`."""

import http.client
import select
import threading
import time
from typing import BinaryIO, Final

__all__ = ["Connections"]

IDLE_CONNECTIONS_MAX: Final = 64
_LINE_BYTES_MAX: Final = 1 << 16
IDLE_S_MAX: Final = 15.0
"""Older connections may have been dropped silently, for example by a NAT gateway."""


class Connections:
    """A pool of idle connections; safe to share between threads."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._idle: dict[tuple[str, str], list[tuple[float, http.client.HTTPConnection]]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def take(self, scheme: str, netloc: str) -> http.client.HTTPConnection:
        with self._lock:
            idle = self._idle.get((scheme, netloc), [])
            while idle:
                since, connection = idle.pop()
                if time.monotonic() - since < IDLE_S_MAX and not _has_ended(connection):
                    return connection
                connection.close()
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        connection = kind(netloc, timeout=self.timeout_s)
        connection.response_class = _Response
        return connection

    def give_back(self, scheme: str, netloc: str, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault((scheme, netloc), [])
            if not self._closed and len(idle) < IDLE_CONNECTIONS_MAX:
                idle.append((time.monotonic(), connection))
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for idle in self._idle.values():
                for _, connection in idle:
                    connection.close()
            self._idle.clear()


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Whether the server closed an idle connection: then the socket is readable."""
    if connection.sock is None:
        return True
    # Not `select.select`, which fails for descriptors above 1023.
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


class _Response(http.client.HTTPResponse):
    """Rejects incomplete headers, which `http.client` accepts as complete."""

    def begin(self) -> None:
        source = self.fp
        self.fp = _CompleteLines(source)  # type: ignore[assignment]
        try:
            super().begin()
        finally:
            if self.fp is not None:
                self.fp = source

    def _read_status(self) -> tuple[int, int, str]:
        """Skip every informational response; `http.client` skips only status 100."""
        while True:
            found: tuple[int, int, str] = super()._read_status()  # type: ignore[misc]
            if not 100 < found[1] < 200:
                return found
            while self.fp.readline(_LINE_BYTES_MAX).strip():
                pass


class _CompleteLines:
    """Lines of a response head, each with its line end."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.close = source.close

    def readline(self, limit: int) -> bytes:
        line = self._source.readline(limit)
        if not line.endswith(b"\n") and len(line) < limit:
            raise http.client.RemoteDisconnected("the connection ended inside the response headers")
        return line
