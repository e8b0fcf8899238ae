"""Events carry the offset after them as their id, and `Last-Event-ID` resumes there."""

from __future__ import annotations

import pytest

from tests.support.looping import for_each
from tests.support.streams import Api, EventStream, check_problem, text_of

pytestmark = pytest.mark.every_kind


def resume(api: Api, path: str, last_id: str, query: str = "offset=-1") -> EventStream:
    return EventStream(
        api.connect(), f"{path}?live=sse&{query}", headers={"Last-Event-ID": last_id}
    )


@for_each("content_type", ["text/plain", "application/json", "application/octet-stream"])
def test_every_event_has_the_offset_after_it(api: Api, content_type: str) -> None:
    path = api.create(content_type, b"1")
    with api.sse(path) as events:
        tail = api.tail(path)
        seen = events.until(tail=tail)
        assert [(event.kind, event.id) for event in seen] == [("data", tail), ("control", tail)]
        tail = api.append(path, b"2", content_type=content_type)
        seen = events.until(tail=tail)
        assert [(event.kind, event.id) for event in seen] == [("data", tail), ("control", tail)]
        api.close_stream(path)
        assert events.next().id == tail


def test_the_first_control_event_has_the_offset_of_the_tail(api: Api) -> None:
    """A reader of `now` that reconnects misses nothing."""
    path = api.create(body=b"before")
    with api.sse(path, "offset=now") as events:
        last_id = events.next().id
    assert last_id == api.tail(path)
    tail = api.append(path, b"missed?")
    with resume(api, path, last_id, "offset=now") as events:
        assert text_of(events.until(tail=tail)) == "missed?"


@for_each("query", ["offset=-1", "offset=now"])
def test_it_resumes_after_that_event(api: Api, query: str) -> None:
    """A browser repeats the URL, so the header wins over `offset`."""
    path = api.create(body=b"one")
    last_id = api.tail(path)
    tail = api.append(path, b"two")
    with resume(api, path, last_id, query) as events:
        assert text_of(events.until(tail=tail)) == "two"


def test_a_chunk_of_a_catch_up_has_its_own_id(short: Api) -> None:
    """Any of them resumes without a repeat and without a loss."""
    path = short.create()
    tails = [short.append(path, b"%d" % n * 60) for n in range(4)]
    with short.sse(path) as events:
        seen = events.until(tail=tails[-1])
    assert [event.id for event in seen if event.kind == "data"] == tails
    for at, last_id in enumerate(tails[:-1]):
        with resume(short, path, last_id) as events:
            rest = text_of(events.until(tail=tails[-1]))
        assert rest == "".join(f"{n}" * 60 for n in range(at + 1, 4))


@for_each("last_id", ["x", "-1", "now", "1", "0000000000000001_", "0" * 33, "1_1"])
def test_an_invalid_id_is_refused(api: Api, last_id: str) -> None:
    """To begin anywhere else would repeat or lose data."""
    path = api.create(body=b"x")
    response = api.get(path, "offset=-1&live=sse", {"Last-Event-ID": last_id})
    problem = check_problem(response, 400, "header-invalid")
    assert "Last-Event-ID" in problem["detail"]


def test_an_id_of_another_stream_is_refused(api: Api) -> None:
    path = api.create(body=b"x")
    beyond = "0000000000000002_0000000000000009"
    response = api.get(path, "offset=-1&live=sse", {"Last-Event-ID": beyond})
    check_problem(response, 400, "offset-beyond-tail")


def test_an_empty_id_and_other_reads_ignore_the_header(api: Api) -> None:
    """It is a part of Server-Sent Events only; HTML defines the empty id as none."""
    path = api.create(body=b"x")
    with resume(api, path, "") as events:
        assert text_of(events.until(tail=api.tail(path))) == "x"
    assert api.get(path, headers={"Last-Event-ID": "nonsense"}).body == b"x"
    assert api.get(path, "offset=-1&live=long-poll", {"Last-Event-ID": "nonsense"}).body == b"x"
