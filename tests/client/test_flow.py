"""The flow alone, driven by hand: what is tried again, and what is not."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from email.utils import formatdate
from time import time
from typing import Any

import pytest

from tailrace.client.errors import (
    Conflict,
    NotFound,
    OffsetGone,
    ProducerFenced,
    ProducerGap,
    RateLimited,
    Refused,
    ServerFailed,
    StreamClosed,
    TailraceError,
    TooLarge,
    Unauthorized,
    Unreachable,
    refusal,
)
from tailrace.client.flow import (
    Body,
    Effect,
    Evaluate,
    Flow,
    MakeRequest,
    Piece,
    Request,
    Response,
    Retry,
    Send,
    Wait,
    send,
)
from tailrace.client.requests import Options
from tailrace.client.streams import StreamFlows

URL = "http://server/v1/stream/s"
CALM = Retry(attempts_max=4, first_s=1.0, longest_s=3.0, jitter=lambda: 1.0)


def making(method: str, *, safe: bool = True) -> MakeRequest:
    def make() -> Flow[Request]:
        yield from ()
        return Request(method, URL, safe=safe, retry=CALM)

    return make


def answer(status: int, **headers: str) -> Response:
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, URL)


def play(flow: Flow[Any], *outcomes: Response | Unreachable) -> tuple[Any, list[Effect]]:
    """Drive a flow with prepared outcomes of its requests; its result, or error, and effects."""
    effects: list[Effect] = []
    left = list(outcomes)
    outcome: Any = None
    try:
        effect = flow.send(None)
        while True:
            effects.append(effect)
            if isinstance(effect, Send):
                outcome = left.pop(0)
            elif isinstance(effect, Evaluate):
                outcome = effect.function()
            elif isinstance(effect, Body | Piece):
                outcome = b""
            if isinstance(outcome, Unreachable):
                error, outcome = outcome, None
                effect = flow.throw(error)
            else:
                effect = flow.send(outcome)
    except StopIteration as stop:
        assert not left
        return stop.value, effects
    except TailraceError as error:
        assert not left
        return error, effects


def waits(effects: list[Effect]) -> list[float]:
    return [effect.seconds for effect in effects if isinstance(effect, Wait)]


class TestRetries:
    def test_pauses_grow_up_to_the_longest(self) -> None:
        lost = Unreachable(URL, "lost")
        result, effects = play(send(making("GET")), lost, lost, lost, answer(200))
        assert result.status == 200
        assert waits(effects) == [1.0, 2.0, 3.0]

    def test_after_the_last_attempt_the_error_is_the_callers(self) -> None:
        lost = [Unreachable(URL, str(at)) for at in range(4)]
        result, effects = play(send(making("GET")), *lost)
        assert result is lost[-1]
        assert len(waits(effects)) == 3

    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_failures_that_pass_are_tried_again(self, status: int) -> None:
        result, effects = play(send(making("GET")), answer(status), answer(200))
        assert result.status == 200
        assert waits(effects) == [1.0]

    @pytest.mark.parametrize("status", [200, 204, 304, 400, 403, 404, 409, 410, 413, 501])
    def test_answers_are_not(self, status: int) -> None:
        result, effects = play(send(making("GET")), answer(status))
        assert result.status == status
        assert waits(effects) == []

    def test_the_server_says_how_long_in_seconds(self) -> None:
        failed = answer(503, retry_after="7")
        _, effects = play(send(making("GET")), failed, answer(200))
        assert waits(effects) == [7.0]

    def test_the_server_says_how_long_by_a_date(self) -> None:
        failed = answer(503, retry_after=formatdate(time() + 60, usegmt=True))
        _, effects = play(send(making("GET")), failed, answer(200))
        assert 30 < waits(effects)[0] <= 60

    @pytest.mark.parametrize("value", ["soon", "-3", "1.5", "", "999999999999"])
    def test_what_it_says_is_taken_with_care(self, value: str) -> None:
        failed = answer(503, retry_after=value)
        _, effects = play(send(making("GET")), failed, answer(200))
        assert waits(effects) == [300.0 if value.startswith("9") else 1.0]


class TestWhatIsNotSafe:
    """An append without a producer: stored twice would be worse than an error."""

    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    def test_a_failure_that_may_have_stored_it_is_not_tried_again(self, status: int) -> None:
        result, _ = play(send(making("POST", safe=False)), answer(status))
        assert result.status == status

    def test_a_lost_answer_is_not_tried_again(self) -> None:
        lost = Unreachable(URL, "lost", sent=True)
        assert play(send(making("POST", safe=False)), lost)[0] is lost

    def test_what_was_not_sent_is_tried_again(self) -> None:
        down = Unreachable(URL, "refused", sent=False)
        assert play(send(making("POST", safe=False)), down, answer(204))[0].status == 204

    def test_what_was_turned_away_is_tried_again(self) -> None:
        assert play(send(making("POST", safe=False)), answer(429), answer(204))[0].status == 204


class TestTail:
    def test_an_event_stream_without_events_is_a_failure(self) -> None:
        """A proxy that closes at once is not asked again and again: it is polled."""
        here = answer(200, stream_next_offset="7", stream_up_to_date="true")
        events = answer(200, content_type="text/event-stream")
        flow = StreamFlows(URL, Options(retry=CALM)).tail().flow
        closed = answer(204, stream_next_offset="7", stream_closed="true")
        result, effects = play(flow, here, events, events, events, closed)
        assert result is None
        assert waits(effects) == [1.0, 2.0, 3.0]

    def test_where_events_cannot_be_had_it_polls(self) -> None:
        here = answer(200, stream_next_offset="7", stream_up_to_date="true")
        closed = answer(204, stream_next_offset="7", stream_closed="true")
        flow = StreamFlows(URL, Options(retry=CALM)).tail().flow
        result, effects = play(flow, here, answer(406), closed)
        assert result is None
        asked = [effect.request.url for effect in effects if isinstance(effect, Send)]
        assert [url.partition("?")[2].partition("&")[0] for url in asked] == [
            "offset=-1",
            "live=sse",
            "live=long-poll",
        ]


class TestDelete:
    def flow(self) -> Flow[None]:
        return StreamFlows(URL, Options(retry=CALM)).delete()

    def test_404_is_an_error(self) -> None:
        assert isinstance(play(self.flow(), answer(404))[0], NotFound)

    def test_404_after_a_lost_answer_is_success(self) -> None:
        lost = Unreachable(URL, "lost", sent=True)
        assert play(self.flow(), lost, answer(404))[0] is None

    @pytest.mark.parametrize(("status", "kind"), [(504, type(None)), (429, NotFound)])
    def test_404_after_a_failure_that_may_have_carried_it_out(
        self, status: int, kind: type[object]
    ) -> None:
        """A gateway that gave up may have passed it on; who was turned away was not served."""
        assert isinstance(play(self.flow(), answer(status), answer(404))[0], kind)

    def test_404_after_a_request_that_was_not_sent_is_an_error(self) -> None:
        down = Unreachable(URL, "refused", sent=False)
        assert isinstance(play(self.flow(), down, answer(404))[0], NotFound)


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (400, {}, Refused),
        (401, {}, Unauthorized),
        (403, {}, Unauthorized),
        (403, {"producer-epoch": "4"}, ProducerFenced),
        (404, {}, NotFound),
        (409, {}, Conflict),
        (409, {"stream-closed": "true"}, StreamClosed),
        (409, {"producer-expected-seq": "3", "producer-received-seq": "5"}, ProducerGap),
        (410, {"stream-earliest-offset": "7"}, OffsetGone),
        (413, {}, TooLarge),
        (429, {"retry-after": "2"}, RateLimited),
        (500, {}, ServerFailed),
        (503, {"retry-after": "2"}, ServerFailed),
    ],
)
def test_each_refusal_has_its_class_and_pickles(
    status: int, headers: Mapping[str, str], kind: type[Refused]
) -> None:
    body = b'{"code": "some-code", "detail": "what to do"}'
    made = refusal(status, URL, {**headers, "content-type": "application/problem+json"}, body)
    again = pickle.loads(pickle.dumps(made))
    for error in (made, again):
        assert type(error) is kind
        assert (error.status, error.url, error.code) == (status, URL, "some-code")
        assert str(error) == f"{status} at {URL}: what to do"
        for name, value in headers.items():
            assert error.headers[name] == value


def test_the_fields_of_refusals() -> None:
    gap = refusal(409, URL, {"producer-expected-seq": "3", "producer-received-seq": "5"}, b"")
    assert isinstance(gap, ProducerGap)
    assert (gap.expected_seq, gap.received_seq) == (3, 5)
    fenced = refusal(403, URL, {"producer-epoch": "4"}, b"")
    assert isinstance(fenced, ProducerFenced)
    assert fenced.epoch == 4
    gone = refusal(410, URL, {"stream-earliest-offset": "7"}, b"text of another server")
    assert isinstance(gone, OffsetGone)
    assert (gone.earliest_offset, gone.detail) == ("7", "text of another server")
    odd = refusal(409, URL, {"producer-expected-seq": "x", "content-type": "x/json"}, b"[1")
    assert isinstance(odd, ProducerGap)
    assert odd.expected_seq is None


def test_unreachable_pickles() -> None:
    error = pickle.loads(pickle.dumps(Unreachable(URL, "lost", False)))
    assert (error.url, error.reason, error.sent) == (URL, "lost", False)


def test_what_is_asked_for_is_asked_again_before_a_retry() -> None:
    """A token may have run out while we waited."""
    tokens = iter(range(10))
    flows = StreamFlows(URL, Options({"authorization": lambda: str(next(tokens))}, retry=CALM))
    _, effects = play(flows.head(), answer(503), answer(503), answer(404))
    sent = [
        effect.request.headers["authorization"] for effect in effects if isinstance(effect, Send)
    ]
    assert sent == ["0", "1", "2"]


def test_a_snapshot_that_is_never_there_is_not_asked_for_for_ever() -> None:
    moved = answer(307, location="/s/snapshot/5")
    result, _ = play(StreamFlows(URL, Options()).snapshot(), moved, answer(404), moved, answer(404))
    assert isinstance(result, NotFound)
