"""
A small HTTP/1.1 client over a plain socket.

Tests need what other clients hide: raw and malformed bytes, one connection kept open over many
requests, a response read in pieces, and the exact headers received.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

# Not an assertion about speed: the machine may be busy.
TIMEOUT_S = 60.0
RECV_BYTES = 65536

HeaderInput = Mapping[str, str] | Iterable[tuple[str, str]]


class ProtocolError(AssertionError):
    """The response is not well-formed HTTP/1.1."""


class Headers:
    """Headers in their order, with names in lower case; a name may be repeated."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = [(name.lower(), value) for name, value in pairs]

    def __getitem__(self, name: str) -> str:
        """The only value of this name. A repeated header is an error."""
        values = self.get_all(name)
        if not values:
            raise KeyError(name)
        if len(values) > 1:
            raise ProtocolError(f"{name} was sent {len(values)} times: {values}")
        return values[0]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.get_all(name))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return f"Headers({self._pairs!r})"

    def get(self, name: str, default: str | None = None) -> str | None:
        try:
            return self[name]
        except KeyError:
            return default

    def get_all(self, name: str) -> list[str]:
        wanted = name.lower()
        return [value for key, value in self._pairs if key == wanted]


@dataclass(frozen=True, slots=True)
class Head:
    """The status line and the headers of one response."""

    status: int
    reason: str
    version: str
    headers: Headers


@dataclass(frozen=True, slots=True)
class Response:
    """One whole response."""

    status: int
    reason: str
    headers: Headers
    body: bytes
    # Interim responses (1xx) before this one.
    interim: list[Head] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.body.decode()


class Connection:
    """One TCP connection. Every wait ends after `timeout` seconds with TimeoutError."""

    def __init__(self, host: str, port: int, timeout: float = TIMEOUT_S) -> None:
        self.host_header = f"{host}:{port}"
        self.sock = socket.create_connection((host, port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    @classmethod
    def to(cls, url: str, timeout: float = TIMEOUT_S) -> Self:
        """A connection to the server of this URL; the URL's path is not used."""
        parts = urlsplit(url)
        return cls(parts.hostname or "127.0.0.1", parts.port or 80, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close with RST instead of FIN, as a client that crashes does."""
        linger = struct.pack("ii", 1, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.sock.close()

    def settimeout(self, seconds: float) -> None:
        self.sock.settimeout(seconds)

    # Sending

    def send(self, raw: bytes) -> None:
        self.sock.sendall(raw)

    def send_request(
        self, method: str, target: str, headers: HeaderInput = (), body: bytes | None = None
    ) -> None:
        """Send one request; Host and Content-Length are added if they are missing."""
        self.send(format_request(method, target, headers, body, host=self.host_header))

    def request(
        self, method: str, target: str, headers: HeaderInput = (), body: bytes | None = None
    ) -> Response:
        """Send one request and read its whole response."""
        self.send_request(method, target, headers, body)
        return self.read_response(method)

    # Receiving

    def read_response(self, method: str = "GET") -> Response:
        """Read one whole response to a request of this method, after any interim ones."""
        interim: list[Head] = []
        head = self.read_head()
        while 100 <= head.status < 200:
            interim.append(head)
            head = self.read_head()
        body = b"".join(self.iter_body(head, method))
        return Response(head.status, head.reason, head.headers, body, interim)

    def read_head(self) -> Head:
        """Read the status line and the headers; the body stays unread."""
        lines = self._read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        status, _, reason = rest.partition(" ")
        if not version.startswith("HTTP/1.") or not (status.isdigit() and len(status) == 3):
            raise ProtocolError(f"bad status line: {lines[0]!r}")
        return Head(
            int(status), reason, version, Headers(_parse_header(line) for line in lines[1:])
        )

    def iter_body(self, head: Head, method: str = "GET") -> Iterator[bytes]:
        """The body in the pieces that were received, with transfer coding removed."""
        if method == "HEAD" or head.status < 200 or head.status in (204, 304):
            return
        if (head.headers.get("transfer-encoding") or "").lower() == "chunked":
            yield from self._iter_chunks()
        elif (length := head.headers.get("content-length")) is not None:
            left = int(length)
            while left:
                piece = self._read_some(left)
                if not piece:
                    raise ProtocolError(f"the connection closed {left} bytes before the body's end")
                left -= len(piece)
                yield piece
        else:
            while piece := self._read_some(RECV_BYTES):
                yield piece

    def closed_by_peer(self) -> bool:
        """Wait until the server closes the connection; False if it sends bytes instead."""
        try:
            return not self._buffer and self.sock.recv(1, socket.MSG_PEEK) == b""
        except ConnectionResetError:
            return True

    def _iter_chunks(self) -> Iterator[bytes]:
        while True:
            size_line = self._read_until(b"\r\n")
            size = int(size_line.split(b";")[0], 16)
            if size == 0:
                while self._read_until(b"\r\n"):
                    pass  # trailers
                return
            chunk = self._read_exactly(size)
            if self._read_exactly(2) != b"\r\n":
                raise ProtocolError("a chunk is longer than its size line")
            yield chunk

    def _read_until(self, mark: bytes) -> bytes:
        """The bytes before `mark`; the mark is consumed too."""
        while (end := self._buffer.find(mark)) < 0:
            if not self._fill():
                raise ProtocolError(f"the connection closed after {bytes(self._buffer)!r}")
        found = bytes(self._buffer[:end])
        del self._buffer[: end + len(mark)]
        return found

    def _read_exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if not self._fill():
                raise ProtocolError(f"the connection closed after {len(self._buffer)} of {count}")
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    def _read_some(self, most: int) -> bytes:
        """Between 1 and `most` bytes; none if the server has closed the connection."""
        if not self._buffer and not self._fill():
            return b""
        found = bytes(self._buffer[:most])
        del self._buffer[:most]
        return found

    def _fill(self) -> bool:
        piece = self.sock.recv(RECV_BYTES)
        self._buffer += piece
        return bool(piece)


def request(
    method: str,
    url: str,
    headers: HeaderInput = (),
    body: bytes | None = None,
    timeout: float = TIMEOUT_S,
) -> Response:
    """One request on a new connection."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with Connection.to(url, timeout) as connection:
        return connection.request(method, target, headers, body)


def format_request(
    method: str,
    target: str,
    headers: HeaderInput = (),
    body: bytes | None = None,
    *,
    host: str,
) -> bytes:
    """The bytes of one request, for tests that send a part or change some."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    given = {name.lower() for name, _ in pairs}
    if "host" not in given:
        pairs.insert(0, ("Host", host))
    bodied = body is not None or method in ("POST", "PUT", "PATCH")
    if bodied and not given & {"content-length", "transfer-encoding"}:
        pairs.append(("Content-Length", str(len(body or b""))))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs)]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def _parse_header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name != name.strip():
        raise ProtocolError(f"bad header line: {line!r}")
    return name, value.strip()
