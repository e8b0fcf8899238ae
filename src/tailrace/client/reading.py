"""
Reading a stream, as flows: its content up to the tail, and then new content (§5.6 to §5.8).

A reader catches up by plain reads and then follows by SSE, or by long-polling where SSE does not
work. Data is passed on when the offset after it is known; after a lost connection the rest is read
again.

Events consist of lines, so that over SSE a CR in text arrives as LF. A tail of bytes therefore
follows a text stream by long-polling, unless its caller chooses SSE.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from tailrace.client.decoding import chunk_of, json_items, split_offset, text_chunks
from tailrace.client.encoding import is_json, is_text
from tailrace.client.errors import AnswerInvalid, NotFound, Unreachable
from tailrace.client.flow import (
    TRANSIENT_STATUSES,
    Body,
    Deadline,
    Flow,
    Give,
    HttpRequest,
    HttpResponse,
    Items,
    MakeRequest,
    Piece,
    Prefetch,
    Reached,
    Send,
    Wait,
    each,
    refused,
)
from tailrace.client.requests import Resource
from tailrace.client.sse import EventParser
from tailrace.client.values import Chunk, Item, TextChunk

__all__ = ["BEGINNING", "NOW", "LiveMode", "ReadFlows"]

BEGINNING: Final = "-1"
NOW: Final = "now"
_CATCH_UP: Final = "catch-up"
_SSE: Final = "sse"
_LONG_POLL: Final = "long-poll"
_AUTO: Final = "auto"
SSE_FAILURES_MAX: Final = 3
"""After this many failures in a row, if SSE never worked, a reader long-polls."""
POLLS_BEFORE_SSE: Final = 10
"""After this many long-polls it tries SSE again."""
CHUNK_BYTES: Final = 1 << 20
"""The size of responses to ask for: each is in memory as a whole. Other servers ignore it."""
LiveMode: TypeAlias = Literal["auto", "sse", "long-poll"]
"""How a tail follows a stream: `auto` chooses, and changes if events do not arrive."""


class ReadFlows(Resource):
    """The operations of readers of a stream."""

    content_type: str | None = None
    """The type of the stream, once a response has told it."""

    def _note_type(self, response: HttpResponse) -> None:
        self.content_type = response.headers.get("content-type") or self.content_type

    def read_all(self, offset: str = BEGINNING) -> Flow[Chunk]:
        """The content up to the current tail as one chunk; JSON as one array. Raises as `read`."""
        found: list[bytes] = []
        while True:
            response, chunk = yield from self._read_once(offset)
            found.append(chunk.data)
            if chunk.up_to_date:
                break
            offset = chunk.next_offset
        return replace(chunk, data=_joined(found, _has_json(response)))

    def read_text(self, offset: str = BEGINNING) -> Items[TextChunk]:
        """The text from an offset up to the current tail, in chunks. Raises as `read`."""
        return each(self.read(offset), text_chunks(offset))

    def read_json(self, offset: str = BEGINNING) -> Items[Item]:
        """
        The messages of a JSON stream up to the current tail, each with the offset after it.

        Raises as `read`; AnswerInvalid if it is no JSON stream.
        """
        return self._items(*split_offset(offset))

    def tail_json(
        self,
        offset: str = BEGINNING,
        *,
        live: LiveMode = "auto",
        timeout_s: float | None = None,
    ) -> Items[Item]:
        """
        The messages of a JSON stream, and then new ones, until it is closed.

        Raises as `tail`; AnswerInvalid if it is no JSON stream.
        """
        start, skipped = split_offset(offset)
        return self._tail_items(start, skipped, _checked_mode(live), timeout_s)

    def tail_text(
        self,
        offset: str = BEGINNING,
        *,
        live: LiveMode = "auto",
        timeout_s: float | None = None,
    ) -> Items[TextChunk]:
        """
        The text of a stream, and then new text, until it is closed. Raises as `tail`.

        Over SSE a CR, alone or before an LF, arrives as LF.
        """
        flow = self._tail(offset, _checked_mode(live), timeout_s, exact=False)
        return each(flow, text_chunks(offset))

    def _items(self, offset: str, skipped: int) -> Items[Item]:
        offset = yield from self._resolved(offset)
        yield from each(self.read(offset), json_items(self.url, offset, skipped))

    def _tail_items(
        self, offset: str, skipped: int, live: LiveMode, timeout_s: float | None
    ) -> Items[Item]:
        if timeout_s is not None:
            yield Deadline(timeout_s)
        offset = yield from self._resolved(offset)
        flow = self._tail(offset, live, None, exact=False)
        yield from each(flow, json_items(self.url, offset, skipped))

    def _resolved(self, offset: str) -> Flow[str]:
        """The offset itself, or that of the tail for `now`: messages can be counted from it."""
        if offset != NOW:
            return offset
        _, chunk = yield from self._read_once(offset)
        return chunk.next_offset

    def read(self, offset: str = BEGINNING) -> Items[Chunk]:
        """
        The content from an offset up to the current tail, in chunks.

        Raises:
            NotFound, OffsetGone: There is no such stream; the offset is no longer retained.
        """
        _check_offset(offset)
        request: HttpRequest | None = None
        while True:
            response, chunk = yield from self._read_once(offset, request)
            if not chunk.up_to_date:
                offset = chunk.next_offset
                request = yield from self._request("GET", params=_plain(offset))()
                yield Prefetch(request)
            if chunk.closed or _has_content(chunk, _has_json(response)):
                yield Give((chunk,))
            yield Reached(chunk.next_offset, chunk.up_to_date, chunk.closed)
            if chunk.up_to_date:
                return

    def _read_once(
        self, offset: str, prefetched: HttpRequest | None = None
    ) -> Flow[tuple[HttpResponse, Chunk]]:
        make = self._request("GET", params=_plain(offset))
        response, data = yield from self._fetch(_first(prefetched, make), 200)
        self._note_type(response)
        chunk = chunk_of(response, data)
        if chunk.next_offset == offset and not chunk.up_to_date:
            raise AnswerInvalid(self.url, f"the read does not advance past offset {offset}")
        return response, chunk

    def tail(
        self,
        offset: str = BEGINNING,
        *,
        live: LiveMode = "auto",
        timeout_s: float | None = None,
    ) -> Items[Chunk]:
        """
        The content from an offset on, and then new content, until the stream is closed.

        It continues after timeouts, restarts and lost connections, without a gap or a repeat. The
        bytes are those that were appended; with `live="sse"`, a CR in text arrives as LF.

        Raises:
            NotFound, OffsetGone: There is no such stream; the offset is no longer retained.
            Unreachable, ServerFailed: More failures in a row than `Retry` allows.
            TimedOut: `timeout_s` seconds after the start, if they are given.
        """
        return self._tail(offset, _checked_mode(live), timeout_s, exact=True)

    def _tail(
        self, offset: str, live: LiveMode, timeout_s: float | None, *, exact: bool
    ) -> Items[Chunk]:
        _check_offset(offset)
        if timeout_s is not None:
            yield Deadline(timeout_s)
        retry = self.options.retry
        at = _Position(offset, live=live, exact=exact)
        failures = 0
        while not at.closed:
            before = at.offset
            at.was_heard = False
            headers: Mapping[str, str] = {}
            try:
                request, at.prefetched = at.prefetched, None
                if request is None:
                    request = yield from self._next_request(at)
                response: HttpResponse = yield Send(request)
                if response.status in TRANSIENT_STATUSES:
                    headers = response.headers
                    failures += 1
                    if failures >= retry.attempts_max:
                        raise (yield from refused(response))
                else:
                    was_live = at.mode != _CATCH_UP
                    yield from self._take(response, at)
                    # A live read that returned nothing counts: a server that returns at once must
                    # not be polled in a tight loop.
                    failures = int(was_live and at.offset == before)
            except Unreachable:
                # If the offset advanced, or the server reported that nothing is new, only the
                # connection was recycled.
                has_worked = at.offset != before or at.was_heard
                failures = 1 if has_worked else failures + 1
                if failures >= retry.attempts_max:
                    raise
            enough = min(SSE_FAILURES_MAX, max(1, retry.attempts_max - 1))
            may_poll = at.mode == _SSE and live == _AUTO
            if may_poll and not at.has_streamed and failures >= enough:
                # A proxy may hold events back.
                at.mode, at.polls_left = _LONG_POLL, POLLS_BEFORE_SSE
            if failures and not at.closed:
                yield Wait(retry.pause_s(failures, headers))

    def _next_request(self, at: "_Position") -> Flow[HttpRequest]:
        params = _plain(at.offset)
        if at.mode != _CATCH_UP:
            params = {"offset": at.offset, "live": at.mode}
        if at.cursor is not None:
            params["cursor"] = at.cursor
        accept = {"accept": "text/event-stream"} if at.mode == _SSE else {}
        request = yield from self._request("GET", params=params, headers=accept)()
        if at.mode != _CATCH_UP:
            request = replace(request, idle_s=self.options.live_idle_s)
        return request

    def _take(self, response: HttpResponse, at: "_Position") -> Items[Chunk]:
        """Pass on the content of a response, and note the position after it."""
        if at.mode == _SSE:
            kind = response.headers.get("content-type", "").lower()
            if response.status == 200 and kind.startswith("text/event-stream"):
                yield from self._follow(response, at)
                return
            if response.status not in (404, 410):
                # The server, or a proxy before it, does not support SSE.
                if at.live == _SSE:
                    raise (yield from self._no_events(response))
                yield Body()
                at.mode = _LONG_POLL
                return
        if response.status not in (200, 204):
            raise (yield from refused(response))
        data = yield Body()
        chunk = chunk_of(response, data)
        self._note_type(response)
        if at.mode == _CATCH_UP:
            if chunk.up_to_date:
                at.mode = _live_mode(at, response)
            elif chunk.next_offset == at.offset:
                raise AnswerInvalid(self.url, f"the read does not advance past offset {at.offset}")
        if at.mode == _LONG_POLL and at.polls_left:
            at.polls_left -= 1
            if not at.polls_left:
                at.mode = _SSE
        if "content-type" in response.headers:
            at.is_json = _has_json(response)
        at.cursor = response.headers.get("stream-cursor", at.cursor)
        at.advance(chunk)
        if at.mode == _CATCH_UP:
            at.prefetched = yield from self._next_request(at)
            yield Prefetch(at.prefetched)
        if chunk.closed or _has_content(chunk, at.is_json):
            yield Give((chunk,))
        yield Reached(chunk.next_offset, chunk.up_to_date, chunk.closed)

    def _no_events(self, response: HttpResponse) -> Flow[Exception]:
        """The error of a server that does not send events, where they are wanted."""
        if response.status != 200:
            return (yield from refused(response))
        return AnswerInvalid(self.url, "the response is not an event stream")

    def _follow(self, response: HttpResponse, at: "_Position") -> Items[Chunk]:
        """Read events until the connection ends; a control event completes the data before it."""
        binary = response.headers.get("stream-sse-data-encoding", "").lower() == "base64"
        parser = EventParser()
        pending: list[bytes] = []
        while piece := (yield Piece()):
            for event in parser.feed(piece):
                if event.name == "data":
                    pending.append(self._decoded(event.data) if binary else event.data)
                elif event.name == "control":
                    at.was_heard = at.has_streamed = True
                    control = _control(response, event.data)
                    if control.get("streamDeleted"):
                        raise NotFound(404, self.url, None, "the stream was deleted")
                    closed = bool(control.get("streamClosed"))
                    up_to_date = closed or bool(control.get("upToDate"))
                    at.cursor = control.get("streamCursor", at.cursor)
                    offset = control["streamNextOffset"]
                    chunk = Chunk(_joined(pending, at.is_json), offset, up_to_date, closed)
                    pending.clear()
                    at.advance(chunk)
                    if chunk.closed or _has_content(chunk, at.is_json):
                        yield Give((chunk,))
                    yield Reached(chunk.next_offset, chunk.up_to_date, chunk.closed)
                    if closed:
                        return
        if not at.was_heard:
            # The connection was not recycled but broke: reconnecting at once could loop for ever.
            raise Unreachable(self.url, "the event stream ended before its first event")

    def _decoded(self, data: bytes) -> bytes:
        try:
            return base64.b64decode(data)
        except ValueError:
            raise AnswerInvalid(self.url, "a data event is not valid base64") from None


@dataclass(slots=True)
class _Position:
    """The position of a reader, and how it continues."""

    offset: str
    live: LiveMode = "auto"
    exact: bool = False
    """Bytes must arrive as they were appended."""
    mode: str = _CATCH_UP
    cursor: str | None = None
    closed: bool = False
    is_json: bool = False
    was_heard: bool = False
    """The current response had a control event."""
    has_streamed: bool = False
    """Some response had one."""
    polls_left: int = 0
    """Long-polls until SSE is tried again; 0 if SSE was rejected."""
    prefetched: HttpRequest | None = None

    def advance(self, chunk: Chunk) -> None:
        """A chunk is about to be passed on: continue after it from now on."""
        self.offset = chunk.next_offset
        self.closed = chunk.closed


def _live_mode(at: _Position, response: HttpResponse) -> str:
    """How to follow the stream, once its tail is reached."""
    if at.live != _AUTO:
        return at.live
    content_type = response.headers.get("content-type", "")
    is_exact = is_json(content_type) or not is_text(content_type)
    return _SSE if is_exact or not at.exact else _LONG_POLL


def _plain(offset: str) -> dict[str, str]:
    """The parameters of a plain read."""
    return {"offset": offset, "bytes_max": str(CHUNK_BYTES)}


def _first(prefetched: HttpRequest | None, make: MakeRequest) -> MakeRequest:
    """Makes a request that was prefetched once, and then new ones."""
    left = [prefetched] if prefetched is not None else []

    def first() -> Flow[HttpRequest]:
        return left.pop() if left else (yield from make())

    return first


def _checked_mode(live: LiveMode) -> LiveMode:
    if live not in get_args(LiveMode):
        raise ValueError(f"live must be one of {', '.join(get_args(LiveMode))}, not {live!r}")
    return live


def _check_offset(offset: str) -> None:
    if "," in offset:
        raise ValueError(f"{offset!r} is the offset of a JSON message: use read_json or tail_json")


def _has_json(response: HttpResponse) -> bool:
    return is_json(response.headers.get("content-type", ""))


def _has_content(chunk: Chunk, are_json: bool) -> bool:
    return bool(chunk.data) and not (are_json and chunk.data == b"[]")


def _joined(pieces: list[bytes], are_json: bool) -> bytes:
    """Join chunks, or the data events before a control event: there may be several (§5.8)."""
    if not are_json or len(pieces) < 2:
        return b"".join(pieces)
    inner = (piece.strip()[1:-1].strip() for piece in pieces)
    return b"[%b]" % b",".join(part for part in inner if part)


def _control(response: HttpResponse, data: bytes) -> dict[str, Any]:
    try:
        control: dict[str, Any] = json.loads(data)
        control["streamNextOffset"]
    except (ValueError, KeyError, TypeError):
        raise AnswerInvalid(response.url, "a control event without streamNextOffset") from None
    return control
