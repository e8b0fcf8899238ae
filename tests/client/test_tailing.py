"""Tails without a driver: responses and events of servers and proxies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.client.errors import (
    AnswerInvalid,
    OffsetGone,
    Refused,
    ServerFailed,
    TailraceError,
    Unreachable,
)
from tailrace.client.flow import (
    Body,
    Flow,
    Give,
    HttpResponse,
    Piece,
    Prefetch,
    Reached,
    Retry,
    Send,
    Wait,
)
from tailrace.client.requests import Options
from tailrace.client.streams import StreamFlows

URL = "http://server/v1/stream/s"
RETRY = Retry(attempts_max=8, first_s=1.0, longest_s=1.0, jitter=lambda: 1.0)
TEXT = "text/plain"
OCTETS = "application/octet-stream"
EVENTS = "text/event-stream"


def caught_up(
    body: bytes = b"", offset: str = "5", kind: str = OCTETS
) -> tuple[HttpResponse, list[Any]]:
    headers = {
        "content-type": kind,
        "stream-next-offset": offset,
        "stream-up-to-date": "true",
        "stream-cursor": "c1",
    }
    return HttpResponse(200, headers, URL), [body]


def events(*pieces: bytes | Unreachable, kind: str = EVENTS) -> tuple[HttpResponse, list[Any]]:
    return HttpResponse(200, {"content-type": kind}, URL), [*pieces, b""]


def control(offset: str, more: str = "") -> bytes:
    return b'event: control\ndata: {"streamNextOffset":"%b"%b}\n\n' % (
        offset.encode(),
        more.encode(),
    )


CUT = Unreachable(URL, "cut")


class Played:
    """A tail, and what it asked for and gave."""

    def __init__(self, flow: Flow[None], answers: Iterator[Any], stop: int = 200) -> None:
        self.sent: list[str] = []
        self.given: list[Any] = []
        self.waits: list[float] = []
        self.error: Exception | None = None
        pieces: list[Any] = []
        outcome: Any = None
        try:
            for _ in range(stop):
                effect = (
                    flow.throw(outcome) if isinstance(outcome, Exception) else flow.send(outcome)
                )
                outcome = None
                if isinstance(effect, Send):
                    self.sent.append(effect.request.url.partition("?")[2])
                    found = next(answers)
                    if isinstance(found, Exception):
                        outcome = found
                    else:
                        outcome, pieces = found[0], list(found[1])
                elif isinstance(effect, Body | Piece):
                    outcome = pieces.pop(0) if pieces else b""
                elif isinstance(effect, Give):
                    self.given += effect.items
                elif isinstance(effect, Wait):
                    self.waits.append(effect.seconds)
                else:
                    assert isinstance(effect, Prefetch | Reached)
        except StopIteration:
            self.ended = True
        except TailraceError as error:
            self.error = error
        else:
            self.ended = False


def tail(*answers: Any, json: bool = False, stop: int = 200, live: Any = "auto") -> Played:
    flows = StreamFlows(URL, Options(retry=RETRY))
    items = flows.tail_json() if json else flows.tail(live=live)
    return Played(items, itertools.chain(answers, itertools.repeat(CUT)), stop)


CLOSED = ',"streamClosed":true'


def test_data_is_passed_on_with_its_control_event() -> None:
    """Cut between the two: it is read again, and passed on once."""
    played = tail(
        caught_up(),
        events(b"event: data\ndata: half\n\n", CUT),
        events(b"event: data\ndata: whole\n\n" + control("9", CLOSED)),
    )
    assert [chunk.data for chunk in played.given] == [b"whole"]
    assert [query for query in played.sent if "offset=5" in query] == played.sent[1:]


def test_data_without_a_control_event_is_read_again() -> None:
    played = tail(
        caught_up(),
        events(control("5"), b"event: data\ndata: half\n\n"),
        events(b"event: data\ndata: whole\n\n" + control("9", CLOSED)),
    )
    assert [chunk.data for chunk in played.given] == [b"whole"]


def test_the_cursor_is_echoed() -> None:
    """§8.1: as the server gave it last, by a header or a control event."""
    played = tail(
        caught_up(),
        events(control("5", ',"streamCursor":"c2"')),
        events(control("9", CLOSED)),
    )
    assert played.sent == [
        "bytes_max=1048576&offset=-1",
        "cursor=c1&live=sse&offset=5",
        "cursor=c2&live=sse&offset=5",
    ]


def test_a_quiet_stream_may_be_disconnected_repeatedly() -> None:
    """The server was heard each time: that is no failure, however often it happens."""
    cut_after_control = [events(control("5"), CUT) for _ in range(50)]
    played = tail(caught_up(), *cut_after_control, events(control("9", CLOSED)), stop=1000)
    assert played.error is None
    assert played.ended
    assert len(played.waits) == 50


@pytest.mark.parametrize("failure", [CUT, (HttpResponse(504, {}, URL), [b""])], ids=["cut", "504"])
def test_it_polls_if_events_do_not_arrive(failure: Any) -> None:
    closed = HttpResponse(200, {"stream-next-offset": "6", "stream-closed": "true"}, URL), [b"!"]
    played = tail(caught_up(), failure, failure, failure, closed)
    assert [query.partition("live=")[2].partition("&")[0] for query in played.sent] == [
        "",
        "sse",
        "sse",
        "sse",
        "long-poll",
    ]
    assert [chunk.data for chunk in played.given] == [b"!"]


def test_after_some_polls_it_tries_sse_again() -> None:
    """They may have failed by chance."""
    nothing = (
        HttpResponse(204, {"stream-next-offset": "5", "stream-up-to-date": "true"}, URL),
        [b""],
    )
    answers = [caught_up(), CUT, CUT, CUT, *[nothing] * 10, events(control("9", CLOSED))]
    played = tail(*answers)
    assert played.ended
    assert "live=sse" in played.sent[-1]


def test_repeated_failures_end_the_tail() -> None:
    played = tail(caught_up(), *[(HttpResponse(503, {}, URL), [b""])] * 20)
    assert isinstance(played.error, ServerFailed)
    assert len(played.sent) == 1 + RETRY.attempts_max


def test_a_server_that_returns_at_once_is_not_polled_in_a_loop() -> None:
    """A server, or a cache, returns live reads at once and empty: the client pauses."""
    played = tail(*[caught_up()] * 100, stop=150)
    assert len(played.waits) >= len(played.sent) - 3


def test_a_content_type_is_the_same_in_capitals() -> None:
    played = tail(caught_up(), events(control("9", CLOSED), kind="Text/Event-Stream; charset=x"))
    assert played.ended
    assert len(played.sent) == 2


def test_invalid_base64_is_an_error() -> None:
    answer = HttpResponse(200, {"content-type": EVENTS, "stream-sse-data-encoding": "base64"}, URL)
    played = tail(caught_up(), (answer, [b"event: data\ndata: abcde\n\n" + control("9")]))
    assert isinstance(played.error, AnswerInvalid)


def test_places_are_independent_of_chunk_boundaries() -> None:
    """Resumed in the middle of what came together, from a server that now sends it in three."""
    headers = {"content-type": "application/json", "stream-next-offset": "a"}
    chunks = [
        (HttpResponse(200, headers, URL), [b"[1,2]"]),
        (HttpResponse(200, {**headers, "stream-next-offset": "b"}, URL), [b"[3]"]),
        caught_up(b"[4,5]", "c", "application/json"),
    ]
    flows = StreamFlows(URL, Options(retry=RETRY))
    played = Played(flows.read_json("0,3"), iter(chunks))
    assert [(item.value, item.next_offset) for item in played.given] == [(4, "b,1"), (5, "c")]


@pytest.mark.parametrize(
    "operation", ["read", "tail", "read_text", "tail_text", "read_or_bootstrap"]
)
def test_a_place_between_messages_is_no_byte_offset(operation: str) -> None:
    flow = getattr(StreamFlows(URL, Options()), operation)("5,3")
    with pytest.raises(ValueError, match="read_json"):
        next(flow)


def test_now_is_resolved_before_messages_are_counted() -> None:
    """A place after `now` would be another one tomorrow."""
    kind = "application/json"
    answers = [
        caught_up(b"[]", "7", kind),
        caught_up(b"[]", "7", kind),
        events(b"event: data\ndata: [1,2]\n\n" + control("9", CLOSED)),
    ]
    flows = StreamFlows(URL, Options(retry=RETRY))
    played = Played(flows.tail_json("now"), iter(answers))
    assert [item.next_offset for item in played.given] == ["7,1", "9"]


def test_a_snapshot_without_its_following_messages_is_read_once() -> None:
    """A server that does not retain what follows its own snapshot."""
    gone = HttpResponse(410, {}, URL), [b""]
    moved = HttpResponse(307, {"location": "/s/snapshot/5"}, URL), [b""]
    headers = {"content-type": TEXT, "stream-snapshot-offset": "5"}
    snapshot = HttpResponse(200, headers, URL), [b"state"]
    flows = StreamFlows(URL, Options(retry=RETRY))
    played = Played(flows.read_or_bootstrap(), iter([gone, moved, snapshot, gone, moved, snapshot]))
    assert isinstance(played.error, OffsetGone)
    assert [found.data for found in played.given] == [b"state"]


def test_empty_arrays_are_joined_to_json_whatever_their_form() -> None:
    data = b"event: data\ndata: [1]\n\nevent: data\ndata: [\ndata: ]\n\n"
    kind = "application/json"
    played = tail(caught_up(b"[]", kind=kind), events(data + control("9", CLOSED)), json=True)
    assert [item.value for item in played.given] == [1]


# -- the live mode ---------------------------------------------------------------------------------


def modes(played: Played) -> list[str]:
    return [query.partition("live=")[2].partition("&")[0] for query in played.sent]


NOTHING = HttpResponse(204, {"stream-next-offset": "5", "stream-up-to-date": "true"}, URL), [b""]
POLLED = HttpResponse(200, {"stream-next-offset": "6", "stream-closed": "true"}, URL), [b"a\r\nb"]


def test_bytes_of_a_text_stream_are_followed_by_long_polls() -> None:
    """Events would change CR to LF; the bytes are the same caught up and live."""
    played = tail(caught_up(b"a\r\nb", kind="Text/Plain; charset=utf-8"), *[NOTHING] * 12, POLLED)
    assert [chunk.data for chunk in played.given] == [b"a\r\nb", b"a\r\nb"]
    assert modes(played) == ["", *["long-poll"] * 13]


def test_text_and_json_are_followed_by_events() -> None:
    last = events(control("9", CLOSED))
    flows = StreamFlows(URL, Options(retry=RETRY))
    assert modes(Played(flows.tail_text(), iter([caught_up(kind=TEXT), last]))) == ["", "sse"]
    kind = "application/json"
    assert modes(tail(caught_up(b"[]", kind=kind), last)) == ["", "sse"]
    assert modes(tail(caught_up(b"[]", kind=kind), last, json=True)) == ["", "sse"]


@pytest.mark.parametrize("kind", [TEXT, OCTETS, "application/json"])
def test_long_polling_can_be_chosen(kind: str) -> None:
    """Then it never tries events."""
    played = tail(caught_up(kind=kind), *[NOTHING] * 12, POLLED, live="long-poll")
    assert modes(played) == ["", *["long-poll"] * 13]


def test_events_can_be_chosen() -> None:
    """Then it never polls, also for text, and however often they fail."""
    last = events(control("9", CLOSED))
    played = tail(caught_up(kind=TEXT), CUT, CUT, CUT, CUT, last, live="sse")
    assert modes(played) == ["", *["sse"] * 5]
    assert played.ended


@pytest.mark.parametrize("answer", [events(kind="text/html"), (HttpResponse(406, {}, URL), [b""])])
def test_chosen_events_that_are_not_sent_are_an_error(answer: Any) -> None:
    played = tail(caught_up(), answer, live="sse")
    assert isinstance(played.error, AnswerInvalid | Refused)


def test_an_unknown_mode_is_refused_at_once() -> None:
    flows: Any = StreamFlows(URL, Options())
    for operation in (flows.tail, flows.tail_json, flows.tail_text):
        with pytest.raises(ValueError, match="auto, sse, long-poll"):
            operation(live="websocket")
