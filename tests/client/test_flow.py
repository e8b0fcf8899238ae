"""Flows without a driver: which requests are retried, and which are not."""

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
    Evaluate,
    Flow,
    FlowEffect,
    HttpRequest,
    HttpResponse,
    MakeRequest,
    Piece,
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
    def make() -> Flow[HttpRequest]:
        yield from ()
        return HttpRequest(method, URL, safe=safe, retry=CALM)

    return make


def response(status: int, **headers: str) -> HttpResponse:
    return HttpResponse(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, URL
    )


def play(flow: Flow[Any], *outcomes: HttpResponse | Unreachable) -> tuple[Any, list[FlowEffect]]:
    """Drive a flow with prepared outcomes of its requests; its result, or error, and effects."""
    effects: list[FlowEffect] = []
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


def waits(effects: list[FlowEffect]) -> list[float]:
    return [effect.seconds for effect in effects if isinstance(effect, Wait)]


class TestRetries:
    def test_pauses_grow_up_to_the_longest(self) -> None:
        lost = Unreachable(URL, "lost")
        result, effects = play(send(making("GET")), lost, lost, lost, response(200))
        assert result.status == 200
        assert waits(effects) == [1.0, 2.0, 3.0]

    def test_the_error_of_the_last_attempt_is_raised(self) -> None:
        lost = [Unreachable(URL, str(at)) for at in range(4)]
        result, effects = play(send(making("GET")), *lost)
        assert result is lost[-1]
        assert len(waits(effects)) == 3

    def test_transient_failures_are_retried(self) -> None:
        for status in (429, 500, 502, 503, 504):
            result, effects = play(send(making("GET")), response(status), response(200))
            assert result.status == 200
            assert waits(effects) == [1.0]

    def test_other_responses_are_not_retried(self) -> None:
        for status in (200, 204, 304, 400, 403, 404, 409, 410, 413, 501):
            result, effects = play(send(making("GET")), response(status))
            assert result.status == status
            assert waits(effects) == []

    def test_retry_after_in_seconds(self) -> None:
        failed = response(503, retry_after="7")
        _, effects = play(send(making("GET")), failed, response(200))
        assert waits(effects) == [7.0]

    def test_retry_after_as_a_date(self) -> None:
        failed = response(503, retry_after=formatdate(time() + 60, usegmt=True))
        _, effects = play(send(making("GET")), failed, response(200))
        assert 30 < waits(effects)[0] <= 60

    def test_invalid_and_huge_values_of_retry_after(self) -> None:
        for value in ("soon", "-3", "1.5", "", "999999999999"):
            failed = response(503, retry_after=value)
            _, effects = play(send(making("GET")), failed, response(200))
            assert waits(effects) == [300.0 if value.startswith("9") else 1.0]


class TestUnsafeRequests:
    """An append without a producer: storing it twice would be worse than an error."""

    def test_it_is_not_retried_if_it_may_have_been_stored(self) -> None:
        for status in (500, 502, 503, 504):
            result, _ = play(send(making("POST", safe=False)), response(status))
            assert result.status == status

    def test_it_is_not_retried_after_a_lost_response(self) -> None:
        lost = Unreachable(URL, "lost", sent=True)
        assert play(send(making("POST", safe=False)), lost)[0] is lost

    def test_it_is_retried_if_it_was_not_sent(self) -> None:
        down = Unreachable(URL, "refused", sent=False)
        assert play(send(making("POST", safe=False)), down, response(204))[0].status == 204

    def test_it_is_retried_after_429(self) -> None:
        assert play(send(making("POST", safe=False)), response(429), response(204))[0].status == 204


class TestTail:
    def test_an_event_stream_without_events_is_a_failure(self) -> None:
        """A proxy that closes event streams at once: the client polls."""
        here = response(200, stream_next_offset="7", stream_up_to_date="true")
        events = response(200, content_type="text/event-stream")
        flow = StreamFlows(URL, Options(retry=CALM)).tail()
        closed = response(204, stream_next_offset="7", stream_closed="true")
        result, effects = play(flow, here, events, events, events, closed)
        assert result is None
        assert waits(effects) == [1.0, 2.0, 3.0]

    def test_it_polls_if_sse_is_rejected(self) -> None:
        here = response(200, stream_next_offset="7", stream_up_to_date="true")
        closed = response(204, stream_next_offset="7", stream_closed="true")
        flow = StreamFlows(URL, Options(retry=CALM)).tail()
        result, effects = play(flow, here, response(406), closed)
        assert result is None
        asked = [effect.request.url for effect in effects if isinstance(effect, Send)]
        assert [url.partition("?")[2].partition("&")[0] for url in asked] == [
            "bytes_max=1048576",
            "live=sse",
            "live=long-poll",
        ]


class TestDelete:
    def flow(self) -> Flow[None]:
        return StreamFlows(URL, Options(retry=CALM)).delete()

    def test_404_is_an_error(self) -> None:
        assert isinstance(play(self.flow(), response(404))[0], NotFound)

    def test_404_after_a_lost_response_is_success(self) -> None:
        lost = Unreachable(URL, "lost", sent=True)
        assert play(self.flow(), lost, response(404))[0] is None

    @pytest.mark.parametrize(("status", "kind"), [(504, type(None)), (429, NotFound)])
    def test_404_after_a_failure_that_may_have_carried_it_out(
        self, status: int, kind: type[object]
    ) -> None:
        """A gateway that timed out may have forwarded it; after a 429 it was not processed."""
        assert isinstance(play(self.flow(), response(status), response(404))[0], kind)

    def test_404_after_a_request_that_was_not_sent_is_an_error(self) -> None:
        down = Unreachable(URL, "refused", sent=False)
        assert isinstance(play(self.flow(), down, response(404))[0], NotFound)


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


def test_callables_are_called_again_before_a_retry() -> None:
    """A token may have expired during the pause."""
    tokens = iter(range(10))
    flows = StreamFlows(URL, Options({"authorization": lambda: str(next(tokens))}, retry=CALM))
    _, effects = play(flows.head(), response(503), response(503), response(404))
    sent = [
        effect.request.headers["authorization"] for effect in effects if isinstance(effect, Send)
    ]
    assert sent == ["0", "1", "2"]


def test_a_snapshot_that_stays_missing_ends_in_an_error() -> None:
    moved = response(307, location="/s/snapshot/5")
    result, _ = play(
        StreamFlows(URL, Options()).snapshot(), moved, response(404), moved, response(404)
    )
    assert isinstance(result, NotFound)
