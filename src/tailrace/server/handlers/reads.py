"""
HEAD, catch-up reads, and the responses of long-poll (§5.5–§5.7).

A response is made of one durable state, so that data, offset, closure and ETag always match. A
large catch-up is sent while it is read: its headers come from the state, which stays pinned until
the end is sent.
"""

import asyncio
import re
from typing import Final, NamedTuple

from tailrace.engine.engine import Engine
from tailrace.engine.entry import StreamEntry
from tailrace.engine.read import Slice
from tailrace.protocol.errors import HeaderInvalid, OffsetGone, OffsetInvalid, QueryInvalid
from tailrace.protocol.expiry import format_expires_at
from tailrace.protocol.json_mode import array_parts
from tailrace.protocol.offset import BEGINNING, START, TAIL, Offset, parse_offset
from tailrace.protocol.state import StreamState
from tailrace.server import headers as h
from tailrace.server.compress import COMPRESS_BYTES_MIN, compress, negotiate
from tailrace.server.errors import Internal
from tailrace.server.handlers.content import ContentReader, content_length
from tailrace.server.message import Reply, Request, Response
from tailrace.server.problem import problem
from tailrace.server.streaming_body import streaming_response

__all__ = [
    "ReadHandlers", "ReadStart", "parse_bytes_max", "parse_last_event_id", "parse_read_start",
    "parse_until",
    "stream_headers",
]  # fmt: skip

_INTEGER: Final = re.compile(r"[1-9][0-9]{0,15}", re.ASCII)
_MAX_AGE_S: Final = 60
_STALE_S: Final = 300
_CACHING: Final = b"%b, max-age=%d, stale-while-revalidate=%d"
_BOUNDED_AGE_S: Final = 24 * 3600
# Compressing more than this takes milliseconds: a thread does it.
_COMPRESS_INLINE_BYTES_MAX: Final = 32 << 10
WHOLE_BYTES_MAX: Final = 1 << 20
"""A larger catch-up is sent while it is read."""


class ReadStart(NamedTuple):
    """Where a read starts: an offset, or None for the current tail."""

    offset: Offset | None
    beginning: bool = False
    """It was requested as `-1`, which can be gone while an equal offset is still valid."""

    def check(self, state: StreamState) -> None:
        """X§2.2: once there is a snapshot, at any offset, `-1` is gone."""
        if self.beginning and state.snapshot is not None:
            raise OffsetGone(BEGINNING, state.earliest.token())


def parse_read_start(query: dict[str, str], *, live: bool, lenient: bool = False) -> ReadStart:
    """Read the `offset` parameter; `lenient`: numbers of any width."""
    token = query.get("offset")
    if token is None:
        if live:
            raise QueryInvalid("offset", "is required on a live read; -1 starts at the beginning")
        return ReadStart(START, beginning=True)
    if token == "":
        raise QueryInvalid("offset", "must not be empty; -1 starts at the beginning")
    if token == TAIL:
        return ReadStart(None)
    if token == BEGINNING:
        return ReadStart(START, beginning=True)
    return ReadStart(parse_offset(token, lenient=lenient))


def parse_last_event_id(value: bytes) -> ReadStart:
    """Read the `Last-Event-ID` header: where an event stream continues."""
    try:
        return ReadStart(parse_offset(value.decode("latin-1")))
    except OffsetInvalid:
        raise HeaderInvalid(
            "Last-Event-ID", "must be the id of an event of this stream, unchanged"
        ) from None


def parse_until(query: dict[str, str], *, live: bool) -> Offset | None:
    """Read the `until` parameter: where a read ends."""
    token = query.get("until")
    if token is None:
        return None
    if live:
        raise QueryInvalid("until", "cannot be combined with live")
    return parse_offset(token)


def parse_bytes_max(query: dict[str, str], *, live: bool) -> int | None:
    """Read the `bytes_max` parameter: how large a response the client wants at most."""
    text = query.get("bytes_max")
    if text is None:
        return None
    if live:
        raise QueryInvalid("bytes_max", "cannot be combined with live")
    if not _INTEGER.fullmatch(text):
        raise QueryInvalid("bytes_max", "must be a whole number from 1 on")
    return int(text)


class ReadHandlers:
    """GET and HEAD of streams, from durable states."""

    def __init__(
        self, engine: Engine, chunk_bytes: int, read_bytes_max: int, *, shared: bool = True
    ) -> None:
        self._engine = engine
        self._chunk_bytes = chunk_bytes
        self._read_bytes_max = read_bytes_max
        self._content = ContentReader(engine)
        self.compressed_bytes = 0
        """Bytes of large responses that were compressed while they were sent."""
        # §10.2: with access control, shared caches must not store a response.
        self._scope = b"public" if shared else b"private"
        self._cacheable = (h.CACHE_CONTROL, _CACHING % (self._scope, _MAX_AGE_S, _STALE_S))
        self._vary = h.vary(shared=shared)

    def head(self, request: Request) -> Response:
        """§5.5: metadata, never cached."""
        stream = self._engine.find(request.target.key)
        state = stream.durable
        assert state is not None
        headers = stream_headers(state)
        remaining_ms = self._engine.remaining_ms(stream)
        if state.ttl_s is not None and remaining_ms is not None:
            headers.append((h.STREAM_TTL, b"%d" % -(-remaining_ms // 1000)))
        if state.expires_at is not None:
            headers.append((h.STREAM_EXPIRES_AT, format_expires_at(state.expires_at).encode()))
        if state.snapshot is not None:
            # X§2.4: nothing before it is retained.
            headers.append((h.STREAM_SNAPSHOT_OFFSET, state.snapshot.offset.encoded()))
            headers.append((h.STREAM_EARLIEST_OFFSET, state.earliest.encoded()))
        return Response(200, headers)

    def catch_up(
        self,
        request: Request,
        stream: StreamEntry,
        position: ReadStart,
        reply: Reply,
        cursor: int | None = None,
        until: Offset | None = None,
        bytes_max: int | None = None,
    ) -> None:
        """
        Catch up: whole messages from `position` on, up to the size limit of one response.

        A client may ask for less: up to `until`, or about `bytes_max`.
        """
        state = stream.durable
        assert state is not None
        start = position.offset
        if start is None:
            if until is not None:
                raise QueryInvalid("until", "needs an offset other than the tail")
            reply(self._at_tail(state))
            return
        position.check(state)
        coding = negotiate(request.headers.get(b"accept-encoding", b""))
        # A long-poll, which has a cursor, returns small chunks.
        limit = self._read_bytes_max if cursor is None else self._chunk_bytes
        bytes_max = limit if bytes_max is None else min(limit, bytes_max)
        if until is not None:
            self._engine.locate(stream, until)
            if until.byte < start.byte:
                raise QueryInvalid("until", "must not be before offset")
            # Both are message boundaries, so the response ends at one.
            bytes_max = min(bytes_max, until.byte - start.byte)
        size = min(bytes_max, state.tail.byte - start.byte)
        if size > WHOLE_BYTES_MAX and cursor is None:
            bounded = until is not None
            reply(self._streamed(request, stream, start, bytes_max, coding, bounded=bounded))
            return
        piece = self._engine.read(stream, start, max(1, bytes_max))
        if not bytes_max:
            piece = Slice(start, start, [], [])
        self.reply_slice(request, stream, piece, coding, reply, cursor, bounded=until is not None)

    def _streamed(
        self,
        request: Request,
        stream: StreamEntry,
        start: Offset,
        bytes_max: int,
        coding: str | None,
        *,
        bounded: bool,
    ) -> Response:
        """A response that is read from storage as its client reads it."""
        state = stream.durable
        assert state is not None
        self._engine.locate(stream, start)
        end = self._engine.end_within(stream, start, bytes_max)
        headers, etag = self._headers(stream, start, end, coding, None, bounded=bounded)
        if h.matches(request.headers.get(b"if-none-match"), etag):
            return Response(304, headers)
        pieces = self._content.pieces(state, start, end)
        release = self._engine.pins.hold(state)
        length = content_length(state, start, end)
        return streaming_response(headers, pieces, release, coding, length, self._count)

    def _count(self, size: int) -> None:
        self.compressed_bytes += size

    def reply_slice(
        self,
        request: Request,
        stream: StreamEntry,
        piece: Slice,
        coding: str | None,
        reply: Reply,
        cursor: int | None,
        *,
        shared: bool = True,
        bounded: bool = False,
    ) -> None:
        """
        Respond with a slice; `shared` is false if the response must not be cached.

        A `bounded` response never changes, so it does not describe the tail.
        """
        state = stream.durable
        assert state is not None
        body = b"".join(array_parts(piece.parts) if state.json else piece.parts)
        if coding is not None and len(body) <= COMPRESS_BYTES_MIN:
            coding = None
        headers, etag = self._headers(
            stream, piece.start, piece.end, coding, cursor, shared=shared, bounded=bounded
        )
        if shared and h.matches(request.headers.get(b"if-none-match"), etag):
            # §8.1: nothing new; the headers are those of the 200.
            reply(Response(304, headers))
            return
        if coding is None:
            reply(Response(200, headers, body))
            return
        headers.append((b"Content-Encoding", coding.encode()))
        if len(body) <= _COMPRESS_INLINE_BYTES_MAX:
            reply(Response(200, headers, compress(coding, body)))
            return
        job = asyncio.get_running_loop().run_in_executor(None, compress, coding, body)

        def compressed(done: "asyncio.Future[bytes]") -> None:
            failed = done.cancelled() or done.exception() is not None
            reply(problem(Internal()) if failed else Response(200, headers, done.result()))

        job.add_done_callback(compressed)

    def _headers(
        self,
        stream: StreamEntry,
        start: Offset,
        end: Offset,
        coding: str | None,
        cursor: int | None,
        *,
        shared: bool = True,
        bounded: bool = False,
    ) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The headers of a response with the content between two offsets, and its ETag."""
        state = stream.durable
        assert state is not None
        at_tail = end == state.tail and not bounded
        etag = self._etag(state, start, end, coding, closed=state.closed and at_tail)
        headers = [
            (h.CONTENT_TYPE, state.content_type.encode("latin-1")),
            (h.STREAM_NEXT_OFFSET, end.encoded()),
            self._cache_control(stream, bounded=bounded) if shared else h.NO_STORE,
            self._vary,
            h.SANDBOX,
        ]
        if shared:
            headers.append((h.ETAG, etag))
        if at_tail:
            headers.append((h.STREAM_UP_TO_DATE, h.TRUE))
            if state.closed:
                headers.append((h.STREAM_CLOSED, h.TRUE))
        if cursor is not None:
            headers.append((h.STREAM_CURSOR, b"%d" % cursor))
        return headers, etag

    def _etag(
        self, state: StreamState, start: Offset, end: Offset, coding: str | None, *, closed: bool
    ) -> bytes:
        """§8.1: it varies with the stream, the range, closure at the end, and the coding."""
        variant = (":c" if closed else "") + (f":{coding}" if coding else "")
        stream = f"{self._engine.store.store_id}.{state.id}"
        return f'"{stream}:{start.token()}:{end.token()}{variant}"'.encode()

    def _at_tail(self, state: StreamState) -> Response:
        """§6: `offset=now` returns no data, only the offset of the tail."""
        headers = [*stream_headers(state), (h.STREAM_UP_TO_DATE, h.TRUE)]
        return Response(200, headers, b"[]" if state.json else b"")

    def nothing_new(self, state: StreamState, cursor: int) -> Response:
        """§5.7: the 204 of a long-poll, at its timeout or at the end of a closed stream."""
        headers = [
            (h.STREAM_NEXT_OFFSET, state.tail.encoded()),
            (h.STREAM_UP_TO_DATE, h.TRUE),
            h.NO_STORE,
        ]
        if state.closed:
            headers.append((h.STREAM_CLOSED, h.TRUE))
        else:
            headers.append((h.STREAM_CURSOR, b"%d" % cursor))
        return Response(204, headers)

    def _cache_control(self, stream: StreamEntry, *, bounded: bool) -> tuple[bytes, bytes]:
        """§8.1: for a minute, but never beyond the stream's life."""
        remaining_ms = self._engine.remaining_ms(stream)
        if bounded:
            # A day and not a year: deleted data should leave caches too.
            life_s = _BOUNDED_AGE_S if remaining_ms is None else remaining_ms // 1000
            max_age_s = min(_BOUNDED_AGE_S, life_s)
            return h.CACHE_CONTROL, b"%b, max-age=%d, immutable" % (self._scope, max_age_s)
        if remaining_ms is None:
            return self._cacheable
        max_age_s = min(_MAX_AGE_S, remaining_ms // 1000)
        stale_s = min(_STALE_S, remaining_ms // 1000 - max_age_s)
        return h.CACHE_CONTROL, _CACHING % (self._scope, max_age_s, stale_s)


def stream_headers(state: StreamState) -> list[tuple[bytes, bytes]]:
    """The headers of a response about a stream as a whole, which is never cached."""
    headers = [
        (h.CONTENT_TYPE, state.content_type.encode("latin-1")),
        (h.STREAM_NEXT_OFFSET, state.tail.encoded()),
        h.NO_STORE,
    ]
    if state.closed:
        headers.append((h.STREAM_CLOSED, h.TRUE))
    return headers
