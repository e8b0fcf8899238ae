"""A connection that keeps the framing of what it reads, to pass it on unchanged."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress

__all__ = ["Wire"]

RECV_BYTES = 65536
HEAD_END = b"\r\n\r\n"
LINE_END = b"\r\n"


class Wire:
    """
    One connection. Reading past its end raises EOFError.

    While it waits for bytes it can watch another connection, and stops waiting when that one ends.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)
        self._socket = connection
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def head(self, watched: Wire | None = None) -> bytes:
        """The head of a request or a response; empty at the end of the connection."""
        if not self._buffer and not self._fill(watched):
            return b""
        return self._until(HEAD_END, watched)

    def body(self, headers: Mapping[str, str], watched: Wire | None = None) -> Iterator[bytes]:
        """The body that follows this head, in pieces as they arrive, with their framing."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            yield from self._chunks(watched)
        elif "content-length" in headers:
            yield from self._pieces(int(headers["content-length"]), watched)
        elif watched is not None:
            # A response that ends with its connection. (A request without a length has no body.)
            while self._buffer or self._fill(watched):
                yield self._take(len(self._buffer))

    def exactly(self, size: int) -> bytes:
        return b"".join(self._pieces(size, None))

    def reset_at_close(self) -> None:
        """End with RST instead of FIN, as a client that crashes does."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def shutdown(self) -> None:
        """Wake up the threads that use this connection; they close it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _chunks(self, watched: Wire | None) -> Iterator[bytes]:
        while True:
            line = self._until(LINE_END, watched)
            yield line
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            yield from self._pieces(size + len(LINE_END), watched)
        while line != LINE_END:
            line = self._until(LINE_END, watched)
            yield line

    def _pieces(self, size: int, watched: Wire | None) -> Iterator[bytes]:
        while size:
            if not self._buffer and not self._fill(watched):
                raise EOFError
            piece = self._take(size)
            size -= len(piece)
            yield piece

    def _until(self, mark: bytes, watched: Wire | None) -> bytes:
        while (end := self._buffer.find(mark)) < 0:
            if not self._fill(watched):
                raise EOFError
        return self._take(end + len(mark))

    def _take(self, most: int) -> bytes:
        taken = bytes(self._buffer[:most])
        del self._buffer[:most]
        return taken

    def _fill(self, watched: Wire | None) -> bool:
        if watched is not None and watched is not self:
            readable, _, _ = select.select([self._socket, watched._socket], [], [])
            if watched._socket in readable and not watched._socket.recv(1, socket.MSG_PEEK):
                raise EOFError
        piece = self._socket.recv(RECV_BYTES)
        self._buffer += piece
        return bool(piece)
