"""
Bootstrap (X§3): a snapshot and every message after it, as one `multipart/mixed` response.

Rule 1: the response is one consistent view. It is made of one durable state, and what that state
refers to stays in storage until the response is complete, even if more is appended or published.

Rule 2: the boundary is random, and all content is searched for it before the first byte is sent.
Stored content can therefore never end a part early.

Rule 3: memory is bounded: parts are made as the peer reads them.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Final

from tailrace.engine.engine import Engine
from tailrace.engine.read import Slice, read_slice
from tailrace.protocol.content_type import DEFAULT_CONTENT_TYPE
from tailrace.protocol.errors import QueryInvalid
from tailrace.protocol.offset import BEGINNING
from tailrace.protocol.state import StreamState
from tailrace.server import headers as h
from tailrace.server.compress import coding_for
from tailrace.server.handlers.snapshots import snapshot_pieces
from tailrace.server.message import Request, Response
from tailrace.server.routing.query import parse_query
from tailrace.server.streaming_body import streaming_response

__all__ = ["BootstrapHandler"]

_PREFIX: Final = "tailrace-"
SLICE_BYTES: Final = 256 << 10
MESSAGES_MAX: Final = 2000
"""Parts that are joined at a time: each may have only two bytes of content."""


class BootstrapHandler:
    """GET of a bootstrap."""

    def __init__(self, engine: Engine, *, shared: bool = True) -> None:
        self._engine = engine
        self._caching = [h.vary(shared=shared), h.caching(b"no-store", shared=shared)]

    async def get(self, request: Request) -> Response:
        """X§3.2."""
        if "live" in parse_query(request.query, ("live",)):
            # X§3.1: servers SHOULD reject any `live` parameter.
            raise QueryInvalid(
                "live",
                "is not supported: tail the stream from the Stream-Next-Offset returned",
            )
        key = request.target.key
        stream = self._engine.find(key)
        state = stream.durable
        assert state is not None
        if request.method == "HEAD":
            headers = _headers(state, _new_boundary(), up_to_date=True)
            return Response(200, headers + self._caching)
        self._engine.touch(stream)
        release = self._engine.pins.hold(state)
        view = _View(self._engine, state)
        try:
            boundary = await view.proven_boundary()
        except BaseException:
            release()
            raise
        # Messages that were appended during the search are not returned.
        now = self._engine.peek(key)
        up_to_date = now is not None and (now.id, now.tail) == (state.id, state.tail)
        headers = _headers(state, boundary, up_to_date=up_to_date) + self._caching
        pieces = view.pieces(boundary)
        length = _length(state, boundary)
        coding = coding_for(request.headers, length)
        return streaming_response(headers, pieces, release, coding, length)


class _View:
    """The content of one response, read twice: to search it, and to send it."""

    def __init__(self, engine: Engine, state: StreamState) -> None:
        self._engine = engine
        self._state = state
        # All messages, if they fit in one slice: then they are read once.
        self._kept: Slice | None = None

    async def proven_boundary(self) -> bytes:
        """Return a boundary that does not occur in the content."""
        while True:
            boundary = _new_boundary()
            if not await self._contains(boundary):
                return boundary

    async def _contains(self, boundary: bytes) -> bool:
        # A match may overlap two messages or chunks: that counts as found too.
        end = b""
        if self._state.snapshot is not None:
            async for chunk in snapshot_pieces(self._engine, self._state.snapshot):
                if boundary in end + chunk:
                    return True
                end = chunk[-len(boundary) :]
        async for piece in self._slices():
            joined = b"".join((end, *piece.parts))
            if boundary in joined:
                return True
            end = joined[-len(boundary) :]
        return False

    async def pieces(self, boundary: bytes) -> AsyncIterator[bytes]:
        """The body: a part for the snapshot, and one for each message."""
        state = self._state
        yield _snapshot_head(state, boundary)
        if state.snapshot is not None:
            async for chunk in snapshot_pieces(self._engine, state.snapshot):
                yield chunk
        head = _message_head(state, boundary)
        async for piece in self._slices():
            for messages in _groups(piece, comma=state.json):
                yield b"".join([item for message in messages for item in (head, message)])
        yield _end(boundary)

    async def _slices(self) -> AsyncIterator[Slice]:
        """The retained messages, as stored, in slices."""
        if self._kept is not None:
            yield self._kept
            return
        state = self._state
        start = state.earliest
        while start != state.tail:
            piece = read_slice(self._engine.store, state, start, SLICE_BYTES, lengths=True)
            if state.tail.byte - state.earliest.byte <= SLICE_BYTES:
                self._kept = piece
            yield piece
            start = piece.end
            await asyncio.sleep(0)


def _groups(piece: Slice, *, comma: bool) -> Iterator[list[bytes | memoryview]]:
    """The messages of a slice, in groups; `comma`: remove the one stored after each."""
    messages: list[bytes | memoryview] = []
    for part, lengths in zip(piece.parts, piece.lengths, strict=True):
        at = 0
        for length in lengths:
            messages.append(part[at : at + length - comma])
            at += length
            if len(messages) == MESSAGES_MAX:
                yield messages
                messages = []
    if messages:
        yield messages


def _new_boundary() -> bytes:
    return (_PREFIX + secrets.token_hex(16)).encode()


def _headers(state: StreamState, boundary: bytes, *, up_to_date: bool) -> list[tuple[bytes, bytes]]:
    snapshot = state.snapshot
    at = BEGINNING.encode() if snapshot is None else snapshot.offset.encoded()
    headers = [
        (h.CONTENT_TYPE, b"multipart/mixed; boundary=" + boundary),
        h.SANDBOX,
        (h.STREAM_SNAPSHOT_OFFSET, at),
        (h.STREAM_NEXT_OFFSET, state.tail.encoded()),
        (h.STREAM_UP_TO_DATE, h.TRUE if up_to_date else h.FALSE),
    ]
    if state.closed:
        headers.append((h.STREAM_CLOSED, h.TRUE))
    return headers


def _snapshot_head(state: StreamState, boundary: bytes) -> bytes:
    """X§3.2: without a snapshot the first part is empty, of type application/octet-stream."""
    content_type = DEFAULT_CONTENT_TYPE if state.snapshot is None else state.snapshot.content_type
    return b"--%b\r\nContent-Type: %b\r\n\r\n" % (boundary, content_type.encode("latin-1"))


def _message_head(state: StreamState, boundary: bytes) -> bytes:
    content_type = state.content_type.encode("latin-1")
    return b"\r\n--%b\r\nContent-Type: %b\r\n\r\n" % (boundary, content_type)


def _end(boundary: bytes) -> bytes:
    return b"\r\n--%b--\r\n" % boundary


def _length(state: StreamState, boundary: bytes) -> int:
    """The length of the whole response, computed from the state alone."""
    count = state.tail.message - state.earliest.message
    stored = state.tail.byte - state.earliest.byte
    messages = stored - count if state.json else stored
    snapshot = 0 if state.snapshot is None else state.snapshot.size
    heads = len(_snapshot_head(state, boundary)) + count * len(_message_head(state, boundary))
    return heads + snapshot + messages + len(_end(boundary))
