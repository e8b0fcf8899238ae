"""
Reading a stream, as flows: what is there, and then whatever comes (§5.6 to §5.8).

A reader catches up by plain reads and then follows by SSE, or by long-polls where that does not
work. Data counts when the offset after it is known: what broke off before is read again.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tailrace.client.decoding import json_items, split_place, text_chunks
from tailrace.client.encoding import is_json
from tailrace.client.errors import AnswerInvalid, NotFound, Unreachable
from tailrace.client.flow import (
    PASSING,
    Ahead,
    Answer,
    Body,
    Call,
    Flow,
    Give,
    Piece,
    Send,
    Wait,
    fetch,
    refused,
)
from tailrace.client.items import Items, each
from tailrace.client.requests import Options, make_call
from tailrace.client.responses import chunk_of
from tailrace.client.sse import EventParser
from tailrace.client.values import Chunk, Item, TextChunk

__all__ = ["BEGINNING", "ReadFlows"]

BEGINNING: Final = "-1"
NOW: Final = "now"
_CATCH_UP: Final = "catch-up"
_SSE: Final = "sse"
_LONG_POLL: Final = "long-poll"
SSE_FAILURES_MAX: Final = 3
"""After so many in a row, if it never worked, it is tried by long-polls,"""
POLLS_BEFORE_SSE: Final = 10
"""and after so many of those again."""


class ReadFlows:
    """What readers of a stream do."""

    def __init__(self, url: str, options: Options) -> None:
        self.url = url
        self._options = options

    def read(self, offset: str = BEGINNING) -> Items[Chunk]:
        """
        What is there from an offset on, up to the tail of now, chunk by chunk.

        Raises:
            NotFound, OffsetGone: It is not there, or not any more.
        """
        return Items(self._read(offset))

    def read_all(self, offset: str = BEGINNING) -> Flow[Chunk]:
        """
        What is there from an offset on, up to the tail of now, in one piece; JSON in one array.

        Raises:
            As `read` does.
        """
        found: list[bytes] = []
        while True:
            call = yield from self._call("GET", {"offset": offset})
            answer, chunk = yield from self._read_once(call, offset)
            found.append(chunk.data)
            if chunk.up_to_date:
                break
            offset = chunk.next_offset
        are_json = is_json(answer.headers.get("content-type", ""))
        return replace(chunk, data=_joined(found, are_json))

    def read_text(self, offset: str = BEGINNING) -> Items[TextChunk]:
        """
        The text of a stream, chunk by chunk, up to the tail of now.

        Raises:
            As `read` does.
        """
        return Items(each(self._read(offset), text_chunks(offset)))

    def tail(self, offset: str = BEGINNING) -> Items[Chunk]:
        """
        What is there from an offset on, and then whatever comes, until the stream is closed.

        Goes on by itself across time-outs, restarts and lost connections, without a gap or a
        repeat.

        Raises:
            NotFound, OffsetGone: It is not there, or not any more.
            Unreachable, ServerFailed: More failures in a row than `Retry` allows.
        """
        return Items(self._tail(offset))

    def read_json(self, offset: str = BEGINNING) -> Items[Item]:
        """
        The messages of a JSON stream, each with where to resume after it, up to the tail of now.

        Raises:
            As `read` does; AnswerInvalid if it is no JSON stream.
        """
        return Items(self._items(*split_place(offset), live=False))

    def tail_json(self, offset: str = BEGINNING) -> Items[Item]:
        """
        The messages of a JSON stream, and those that come, until it is closed.

        Raises:
            As `tail` does; AnswerInvalid if it is no JSON stream.
        """
        return Items(self._items(*split_place(offset), live=True))

    def tail_text(self, offset: str = BEGINNING) -> Items[TextChunk]:
        """
        The text of a stream, as it comes, until it is closed.

        Over SSE a CR, alone or before an LF, arrives as LF.

        Raises:
            As `tail` does.
        """
        return Items(each(self._tail(offset), text_chunks(offset)))

    def _items(self, offset: str, skipped: int, *, live: bool) -> Flow[None]:
        offset = yield from self._settled(offset)
        flow = self._tail(offset) if live else self._read(offset)
        yield from each(flow, json_items(self.url, offset, skipped))

    def _settled(self, offset: str) -> Flow[str]:
        """An offset to which messages can be counted: that of the tail, if it is `now`."""
        if offset != NOW:
            return offset
        call = yield from self._call("GET", {"offset": offset})
        _, chunk = yield from self._read_once(call, offset)
        return chunk.next_offset

    def _read(self, offset: str) -> Flow[None]:
        _check_offset(offset)
        call = yield from self._call("GET", {"offset": offset})
        while True:
            answer, chunk = yield from self._read_once(call, offset)
            if not chunk.up_to_date:
                offset = chunk.next_offset
                call = yield from self._call("GET", {"offset": offset})
                yield Ahead(call)
            if chunk.closed or _has_content(chunk, is_json(answer.headers.get("content-type", ""))):
                yield Give((chunk,))
            if chunk.up_to_date:
                return

    def _read_once(self, call: Call, offset: str) -> Flow[tuple[Answer, Chunk]]:
        answer, data = yield from fetch(call, self._options.retry, 200)
        chunk = chunk_of(answer, data)
        if chunk.next_offset == offset and not chunk.up_to_date:
            raise AnswerInvalid(self.url, f"the read does not get past offset {offset}")
        return answer, chunk

    def _tail(self, offset: str) -> Flow[None]:
        """Catch up by plain reads, then follow; begin again where it stopped, whatever happened."""
        _check_offset(offset)
        retry = self._options.retry
        place = _Place(offset)
        failures = 0
        while not place.closed:
            before = place.offset
            place.was_heard = False
            headers: Mapping[str, str] = {}
            try:
                answer = yield from self._ask(place)
                if answer.status in PASSING:
                    headers = answer.headers
                    failures += 1
                    if failures >= retry.attempts_max:
                        raise (yield from refused(answer))
                else:
                    was_live = place.mode != _CATCH_UP
                    yield from self._take(answer, place)
                    # Nothing came: a server that lets nobody wait must not be asked without end.
                    failures = int(was_live and place.offset == before)
            except Unreachable:
                # A reader that came further, or heard the server say that there is nothing, did
                # not fail: its connection was recycled roughly.
                is_new = place.offset != before or place.was_heard
                failures = 1 if is_new else failures + 1
                if failures >= retry.attempts_max:
                    raise
            enough = min(SSE_FAILURES_MAX, max(1, retry.attempts_max - 1))
            if place.mode == _SSE and not place.has_streamed and failures >= enough:
                # Something on the way may not let events through.
                place.mode, place.polls_left = _LONG_POLL, POLLS_BEFORE_SSE
            if failures and not place.closed:
                yield Wait(retry.pause_s(failures, headers))

    def _ask(self, place: "_Place") -> Flow[Answer]:
        call, place.ahead = place.ahead, None
        if call is None:
            call = yield from self._next_call(place)
        answer: Answer = yield Send(call)
        return answer

    def _next_call(self, place: "_Place") -> Flow[Call]:
        params = {"offset": place.offset}
        if place.mode != _CATCH_UP:
            params["live"] = place.mode
        if place.cursor is not None:
            params["cursor"] = place.cursor
        accept = {"accept": "text/event-stream"} if place.mode == _SSE else {}
        call = yield from self._call("GET", params, accept)
        if place.mode != _CATCH_UP:
            call = replace(call, idle_s=self._options.live_idle_s)
        return call

    def _take(self, answer: Answer, place: "_Place") -> Flow[None]:
        """Hand out what an answer has, and note how far it got."""
        if place.mode == _SSE:
            is_sse = answer.headers.get("content-type", "").lower().startswith("text/event-stream")
            if answer.status == 200 and is_sse:
                yield from self._follow(answer, place)
                return
            if answer.status not in (404, 410):
                # A server, or a proxy before it, that cannot do it.
                yield Body()
                place.mode = _LONG_POLL
                return
        if answer.status not in (200, 204):
            raise (yield from refused(answer))
        data = yield Body()
        chunk = chunk_of(answer, data)
        if place.mode == _CATCH_UP:
            if chunk.up_to_date:
                place.mode = _SSE
            elif chunk.next_offset == place.offset:
                raise AnswerInvalid(self.url, f"the read does not get past {place.offset}")
        if place.mode == _LONG_POLL and place.polls_left:
            place.polls_left -= 1
            if not place.polls_left:
                place.mode = _SSE
        if "content-type" in answer.headers:
            place.is_json = is_json(answer.headers["content-type"])
        place.cursor = answer.headers.get("stream-cursor", place.cursor)
        place.pass_by(chunk)
        if place.mode == _CATCH_UP:
            place.ahead = yield from self._next_call(place)
            yield Ahead(place.ahead)
        if chunk.closed or _has_content(chunk, place.is_json):
            yield Give((chunk,))

    def _follow(self, answer: Answer, place: "_Place") -> Flow[None]:
        """Read events until the connection ends; data counts when its control event is there."""
        binary = answer.headers.get("stream-sse-data-encoding", "").lower() == "base64"
        parser = EventParser()
        pending: list[bytes] = []
        seen = False
        while piece := (yield Piece()):
            for event in parser.feed(piece):
                if event.name == "data":
                    pending.append(self._decoded(event.data) if binary else event.data)
                elif event.name == "control":
                    seen = place.was_heard = place.has_streamed = True
                    control = _control(answer, event.data)
                    if control.get("streamDeleted"):
                        raise NotFound(404, self.url, None, "the stream was deleted")
                    closed = bool(control.get("streamClosed"))
                    up_to_date = closed or bool(control.get("upToDate"))
                    place.cursor = control.get("streamCursor", place.cursor)
                    offset = control["streamNextOffset"]
                    chunk = Chunk(_joined(pending, place.is_json), offset, up_to_date, closed)
                    pending.clear()
                    place.pass_by(chunk)
                    if chunk.closed or _has_content(chunk, place.is_json):
                        yield Give((chunk,))
                    if closed:
                        return
        if not seen:
            # Not recycled, but broken: to come back at once would be to do so for ever.
            raise Unreachable(self.url, "the event stream ended before its first event")

    def _decoded(self, data: bytes) -> bytes:
        try:
            return base64.b64decode(data)
        except ValueError:
            raise AnswerInvalid(self.url, "a data event that is not in base64") from None

    def _call(
        self,
        method: str,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        body: bytes = b"",
        safe: bool = True,
    ) -> Flow[Call]:
        return make_call(self._options, method, self.url, params, headers, body=body, safe=safe)


@dataclass(slots=True)
class _Place:
    """How far a reader is, and how it goes on."""

    offset: str
    mode: str = _CATCH_UP
    cursor: str | None = None
    closed: bool = False
    is_json: bool = False
    was_heard: bool = False
    """The server has said over SSE where we are: by this answer,"""
    has_streamed: bool = False
    """or by one before."""
    polls_left: int = 0
    """So many until SSE is tried again; 0 if it was refused."""
    ahead: Call | None = None
    """What was asked for already."""

    def pass_by(self, chunk: Chunk) -> None:
        """A chunk is about to be handed out: from then on it is behind us."""
        self.offset = chunk.next_offset
        self.closed = chunk.closed


def _check_offset(offset: str) -> None:
    if "," in offset:
        raise ValueError(
            f"{offset!r} is a place between messages of JSON, for read_json and tail_json"
        )


def _has_content(chunk: Chunk, are_json: bool) -> bool:
    return bool(chunk.data) and not (are_json and chunk.data == b"[]")


def _joined(pieces: list[bytes], are_json: bool) -> bytes:
    """Chunks, or data events up to a control event: not all servers have one for each (§5.8)."""
    if not are_json or len(pieces) < 2:
        return b"".join(pieces)
    inner = (piece.strip()[1:-1].strip() for piece in pieces)
    return b"[%b]" % b",".join(part for part in inner if part)


def _control(answer: Answer, data: bytes) -> dict[str, Any]:
    try:
        control = json.loads(data)
        control["streamNextOffset"]
    except (ValueError, KeyError, TypeError):
        raise AnswerInvalid(answer.url, "a control event without streamNextOffset") from None
    fields: dict[str, Any] = control
    return fields
