"""
Every operation on a stream, as a flow (§5).

Both shells take their methods from here, so their signatures, their docs and what they do are the
same.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

from tailrace.client.answers import appended, chunk_of, is_true, next_offset
from tailrace.client.batching import Limits
from tailrace.client.decoding import json_items, split_place, text_chunks
from tailrace.client.encoding import encode_json
from tailrace.client.errors import AnswerInvalid, NotFound, Unreachable
from tailrace.client.flow import (
    PASSING,
    Answer,
    Body,
    Call,
    Flow,
    Give,
    Piece,
    Send,
    Wait,
    expect,
    expect_gone,
    refused,
)
from tailrace.client.items import Items, each
from tailrace.client.producing import Plan, ProducerSetup
from tailrace.client.requests import make_call
from tailrace.client.snapshots import SnapshotFlows
from tailrace.client.sse import EventParser
from tailrace.client.values import (
    Appended,
    Chunk,
    Created,
    Head,
    Item,
    ProducerClaim,
    TextChunk,
)

__all__ = ["StreamFlows"]

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
BEGINNING: Final = "-1"
_JSON: Final = "application/json"
_CATCH_UP: Final = "catch-up"
_SSE: Final = "sse"
_LONG_POLL: Final = "long-poll"


class StreamFlows(SnapshotFlows):
    """One stream at its URL."""

    # -- writing -----------------------------------------------------------------------------

    def create(
        self,
        content_type: str | None = None,
        *,
        body: bytes = b"",
        ttl_s: int | None = None,
        expires_at: str | None = None,
        closed: bool = False,
    ) -> Flow[Created]:
        """
        Create the stream, perhaps with first content; no error if it exists just so.

        Raises:
            Conflict: It exists with another type, life or closure.
            NotFound: Its bucket does not exist.
        """
        headers = {"content-type": content_type} if content_type else {}
        if ttl_s is not None:
            headers["stream-ttl"] = str(ttl_s)
        if expires_at is not None:
            headers["stream-expires-at"] = expires_at
        if closed:
            headers["stream-closed"] = "true"
        call = yield from self._call("PUT", headers=headers, body=body)
        answer = yield from expect(call, self._options.retry, 200, 201)
        yield Body()
        return Created(
            new=answer.status == 201,
            content_type=answer.headers.get("content-type", content_type or DEFAULT_CONTENT_TYPE),
            next_offset=next_offset(answer),
            closed=is_true(answer, "stream-closed"),
        )

    def append(
        self,
        data: bytes,
        content_type: str = DEFAULT_CONTENT_TYPE,
        *,
        seq: str | None = None,
        close: bool = False,
        claim: ProducerClaim | None = None,
    ) -> Flow[Appended]:
        """
        Append bytes, in one step with closing the stream if asked.

        Not repeated when it is unknown whether it was stored, unless a `claim` tells the server
        which append this is: then it is stored once. `producer` makes the claims by itself.

        Raises:
            StreamClosed, Conflict, NotFound: It cannot be appended.
            ProducerFenced, ProducerGap: The claim's epoch is stale; a predecessor is missing.
            Unreachable, ServerFailed: It may have been stored, or not.
        """
        headers = {"content-type": content_type}
        if seq is not None:
            headers["stream-seq"] = seq
        if close:
            headers["stream-closed"] = "true"
        if claim is not None:
            headers.update(claim.headers())
        safe = claim is not None
        call = yield from self._call("POST", headers=headers, body=data, safe=safe)
        answer = yield from expect(call, self._options.retry, 200, 204)
        yield Body()
        return appended(answer, claimed=claim is not None)

    def append_json(
        self, *items: object, close: bool = False, claim: ProducerClaim | None = None
    ) -> Flow[Appended]:
        """
        Append values to a stream of JSON, a message each, in one step.

        Raises:
            As `append` does.
        """
        return (yield from self.append(encode_json(items), _JSON, close=close, claim=claim))

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int = 0,
        auto_claim: bool = False,
        content_type: str = _JSON,
        batch_bytes_max: int = 1 << 20,
        batch_count_max: int = 10_000,
        linger_s: float = 0.005,
        in_flight_max: int = 5,
        queue_bytes_max: int = 32 << 20,
        queue_count_max: int = 100_000,
        on_error: Callable[[Exception], object] | None = None,
    ) -> ProducerSetup:
        """
        Something to append with in the background, each message stored once and in order (§5.2.1).

        Messages go in batches: when one is full, or after `linger_s`. On a stream that is not of
        JSON a batch is one message to the server; `batch_count_max=1` keeps each its own.

        Args:
            producer_id: Who writes, for writers that go on after a restart; a random one if not
                given. To use one again takes a higher `epoch`, or `auto_claim`.
            auto_claim: Take the next epoch where that id was used before, and end who holds it.
            in_flight_max: So many requests at once.
            queue_bytes_max, queue_count_max: While so much is not stored, `append` waits.
            on_error: Called once with what ends the producer, in its thread or loop.

        Raises:
            ValueError: A limit, the epoch or the id is none.
        """
        if producer_id == "" or not 0 <= epoch < 2**53:
            raise ValueError("producer_id must not be empty, and epoch must be 0 to 2**53 - 1")
        limits = Limits(
            batch_bytes_max,
            batch_count_max,
            linger_s,
            in_flight_max,
            queue_bytes_max,
            queue_count_max,
        )
        plan = Plan(content_type, producer_id is not None, auto_claim, on_error)
        return ProducerSetup(self.url, producer_id or str(uuid4()), epoch, plan, limits)

    def close(self) -> Flow[Appended]:
        """Close the stream: nothing more can be appended. No error if it is closed already."""
        call = yield from self._call("POST", headers={"stream-closed": "true"})
        answer = yield from expect(call, self._options.retry, 200, 204)
        yield Body()
        return Appended(next_offset(answer), closed=True)

    def delete(self) -> Flow[None]:
        """
        Delete the stream and all its data.

        Raises:
            NotFound: There is none.
        """
        call = yield from self._call("DELETE")
        yield from expect_gone(call, self._options.retry)

    # -- reading -----------------------------------------------------------------------------

    def head(self) -> Flow[Head]:
        """
        What the stream is, without reading it.

        Raises:
            NotFound: There is none.
        """
        call = yield from self._call("HEAD")
        answer = yield from expect(call, self._options.retry, 200)
        yield Body()
        found = answer.headers
        ttl = found.get("stream-ttl")
        return Head(
            content_type=found.get("content-type", DEFAULT_CONTENT_TYPE),
            next_offset=next_offset(answer),
            closed=is_true(answer, "stream-closed"),
            ttl_s=int(ttl) if ttl and ttl.isdecimal() else None,
            expires_at=found.get("stream-expires-at"),
            snapshot_offset=found.get("stream-snapshot-offset"),
            earliest_offset=found.get("stream-earliest-offset"),
        )

    def read(self, offset: str = BEGINNING) -> Items[Chunk]:
        """
        What is there from an offset on, up to the tail of now, chunk by chunk.

        Raises:
            NotFound, OffsetGone: It is not there, or not any more.
        """
        return Items(self._read(offset))

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
        start, skipped = split_place(offset)
        return Items(each(self._read(start), json_items(self.url, start, skipped)))

    def tail_json(self, offset: str = BEGINNING) -> Items[Item]:
        """
        The messages of a JSON stream, and those that come, until it is closed.

        Raises:
            As `tail` does; AnswerInvalid if it is no JSON stream.
        """
        start, skipped = split_place(offset)
        return Items(each(self._tail(start), json_items(self.url, start, skipped)))

    def tail_text(self, offset: str = BEGINNING) -> Items[TextChunk]:
        """
        The text of a stream, as it comes, until it is closed.

        Over SSE a CR, alone or before an LF, arrives as LF.

        Raises:
            As `tail` does.
        """
        return Items(each(self._tail(offset), text_chunks()))

    def _read(self, offset: str) -> Flow[None]:
        while True:
            call = yield from self._call("GET", {"offset": offset})
            answer = yield from expect(call, self._options.retry, 200)
            data = yield Body()
            chunk = chunk_of(answer, data)
            if chunk.data or chunk.closed:
                yield Give(chunk)
            if chunk.up_to_date or chunk.closed:
                return
            if chunk.next_offset == offset:
                raise AnswerInvalid(self.url, f"the read does not get past offset {offset}")
            offset = chunk.next_offset

    def _tail(self, offset: str) -> Flow[None]:
        """Catch up by plain reads, then follow; begin again where it stopped, whatever happened."""
        retry = self._options.retry
        place = _Place(offset)
        failures = 0
        while not place.closed:
            before = place.offset
            headers: Mapping[str, str] = {}
            try:
                answer = yield from self._ask(place)
                if answer.status in PASSING:
                    headers = answer.headers
                    failures += 1
                    if failures >= retry.attempts_max:
                        raise (yield from refused(answer))
                else:
                    yield from self._take(answer, place)
                    failures = 0
            except Unreachable:
                # A reader that came further did not fail: its connection was recycled roughly.
                failures = 1 if place.offset != before else failures + 1
                if failures >= retry.attempts_max:
                    raise
            if failures:
                yield Wait(retry.pause_s(failures, headers))

    def _ask(self, place: "_Place") -> Flow[Answer]:
        params = {"offset": place.offset}
        if place.mode != _CATCH_UP:
            params["live"] = place.mode
        if place.cursor is not None:
            params["cursor"] = place.cursor
        accept = {"accept": "text/event-stream"} if place.mode == _SSE else {}
        call = yield from self._call("GET", params, accept)
        if place.mode != _CATCH_UP:
            call = replace(call, idle_s=self._options.live_idle_s)
        answer: Answer = yield Send(call)
        return answer

    def _take(self, answer: Answer, place: "_Place") -> Flow[None]:
        """Hand out what an answer has, and note how far it got."""
        if place.mode == _SSE:
            is_sse = answer.headers.get("content-type", "").startswith("text/event-stream")
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
        place.cursor = answer.headers.get("stream-cursor", place.cursor)
        yield from place.reach(chunk)

    def _follow(self, answer: Answer, place: "_Place") -> Flow[None]:
        """Read events until the connection ends; data counts when its control event is there."""
        binary = answer.headers.get("stream-sse-data-encoding", "").lower() == "base64"
        parser = EventParser()
        pending: list[bytes] = []
        seen = False
        while piece := (yield Piece()):
            for event in parser.feed(piece):
                if event.name == "data":
                    pending.append(base64.b64decode(event.data) if binary else event.data)
                elif event.name == "control":
                    seen = True
                    control = _control(answer, event.data)
                    if control.get("streamDeleted"):
                        raise NotFound(404, self.url, None, "the stream was deleted")
                    closed = bool(control.get("streamClosed"))
                    up_to_date = closed or bool(control.get("upToDate"))
                    place.cursor = control.get("streamCursor", place.cursor)
                    offset = control["streamNextOffset"]
                    chunk = Chunk(b"".join(pending), offset, up_to_date, closed)
                    pending.clear()
                    yield from place.reach(chunk)
                    if closed:
                        return
        if not seen:
            # Not recycled, but broken: to come back at once would be to do so for ever.
            raise Unreachable(self.url, "the event stream ended before its first event")

    # -- requests ----------------------------------------------------------------------------

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

    def reach(self, chunk: Chunk) -> Flow[None]:
        """Hand out a chunk; from then on it is behind us."""
        self.offset = chunk.next_offset
        self.closed = chunk.closed
        if chunk.data or chunk.closed:
            yield Give(chunk)


def _control(answer: Answer, data: bytes) -> dict[str, Any]:
    try:
        control = json.loads(data)
        control["streamNextOffset"]
    except (ValueError, KeyError, TypeError):
        raise AnswerInvalid(answer.url, "a control event without streamNextOffset") from None
    fields: dict[str, Any] = control
    return fields
