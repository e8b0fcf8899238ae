"""Surveys of buckets, and what concerns many streams at once, by both clients."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from tailrace.client import (
    AnswerInvalid,
    NotFound,
    Place,
    PositionGone,
    Refused,
    StreamName,
    Survey,
)
from tailrace.client.buckets import BucketFlows
from tailrace.client.errors import refusal
from tailrace.client.flow import Body, Flow, HttpResponse, Send
from tailrace.client.requests import Options
from tests.client.tiers import async_first, sync_first

TEXT = "text/plain"
JSON = "application/json"
_numbers = itertools.count()


@pytest.fixture
def bucket(client: Any) -> Any:
    """A bucket with a unique name."""
    made = client.bucket(f"bulk-{next(_numbers)}")
    made.create()
    return made


def ids(survey: Survey) -> list[str]:
    return [item.stream_id for item in survey.streams]


class TestSurvey:
    def test_the_whole_bucket_and_then_its_changes(self, bucket: Any) -> None:
        for name in ("a", "b", "c"):
            bucket.stream(name).create(TEXT)
        first = bucket.survey()
        assert (ids(first), first.deleted) == (["a", "b", "c"], [])
        none = bucket.survey(since=first.position)
        assert (none.streams, none.deleted) == ([], [])
        assert ids(bucket.survey(since=none.position)) == []
        tail = bucket.stream("b").append("x", TEXT).next_offset
        bucket.stream("b").publish_snapshot("snapshot", tail)
        bucket.stream("a").delete()
        bucket.stream("d").create(TEXT)
        second = bucket.survey(since=first.position)
        assert (ids(second), second.deleted) == (["b", "d"], ["a"])
        changed = second.streams[0]
        assert (changed.next_offset, changed.earliest_offset) == (tail, tail)
        assert (changed.snapshot_offset, changed.snapshot_bytes) == (tail, 8)
        assert changed.snapshot_at_ms is not None
        assert ids(bucket.survey("d", since=first.position)) == ["d"]
        assert ids(bucket.survey("c")) == ["c"]

    @async_first
    def test_many_pages(self, bucket: Any) -> None:
        start = bucket.survey().position
        names = [f"{number:04d}" for number in range(1203)]
        for name in names:
            bucket.stream(name).create(TEXT)
        assert ids(bucket.survey()) == names
        assert ids(bucket.survey(since=start)) == names

    def test_a_position_that_is_gone(self, bucket: Any) -> None:
        with pytest.raises(PositionGone) as caught:
            bucket.survey(since="0123456789abcdef-1")
        assert (caught.value.status, caught.value.code) == (410, "position-gone")

    def test_a_missing_bucket(self, client: Any) -> None:
        with pytest.raises(NotFound):
            client.bucket("never-created").survey()


class TestOffsets:
    def test_places(self, client: Any, bucket: Any) -> None:
        stream = bucket.stream("é s")
        stream.create(JSON)
        tail = stream.append_json(1, 2, 3).next_offset
        path = f"{bucket.url.rsplit('/', 1)[1]}/é"
        client.stream(path).create(TEXT, body=b"abc")
        name = StreamName(bucket.url.rsplit("/", 1)[1], "é s")
        found = client.offsets(
            [
                Place(name, message=1),
                Place(name, byte=3),
                Place(name, time_ms=0),
                Place(name, time_ms=1 << 50),
                Place(StreamName(None, path), message=5),
                Place(StreamName(None, "missing"), byte=0),
            ]
        )
        zero = f"{0:016d}_{0:016d}"
        one = f"{1:016d}_{2:016d}"
        assert found[:-1] == [one, one, zero, tail, f"{1:016d}_{3:016d}"]
        assert isinstance(found[-1], NotFound)
        assert (found[-1].status, found[-1].code) == (404, "stream-not-found")
        assert found[-1].detail
        assert client.offsets([]) == []

    @sync_first
    def test_more_places_than_one_request_takes(self, client: Any, bucket: Any) -> None:
        bucket.stream("s").create(TEXT, body=b"abc")
        name = StreamName(bucket.url.rsplit("/", 1)[1], "s")
        places = [Place(name, message=number % 2) for number in range(20_001)]
        tokens = [f"{0:016d}_{0:016d}", f"{1:016d}_{3:016d}"]
        assert client.offsets(places) == [tokens[number % 2] for number in range(20_001)]

    @pytest.mark.parametrize("said", [{}, {"message": 1, "byte": 2}, {"byte": 0, "time_ms": 0}])
    def test_a_place_needs_exactly_one_field(self, client: Any, said: dict[str, int]) -> None:
        with pytest.raises(ValueError):
            client.offsets([Place(StreamName(None, "s"), **said)])


class TestRows:
    def test_pieces_are_an_arrow_stream(self, client: Any, bucket: Any) -> None:
        bucket.stream("s").create(JSON)
        bucket.stream("s").append_json(*range(1000))
        asked = {"bucket": bucket.url.rsplit("/", 1)[1], "stream": "s"}
        pieces = list(client.rows(json.dumps({"ranges": [asked]}).encode()))
        assert all(isinstance(piece, bytes) and piece for piece in pieces)
        table = pa.ipc.open_stream(b"".join(pieces)).read_all()
        values = table.column("value").to_pylist()
        assert values == [*(b"%d" % number for number in range(1000)), None]

    def test_a_refusal(self, client: Any) -> None:
        with pytest.raises(Refused) as caught:
            list(client.rows(b"{}"))
        assert (caught.value.status, caught.value.code) == (400, "request-invalid")

    def test_rows_that_are_not_read_to_their_end(self, client: Any, bucket: Any) -> None:
        """Its connection is not reused."""
        bucket.stream("s").create(TEXT)
        for _ in range(4):
            bucket.stream("s").append(b"x" * (1 << 20), TEXT)
        asked = {"bucket": bucket.url.rsplit("/", 1)[1], "stream": "s"}
        pieces = client.rows(json.dumps({"ranges": [asked] * 4}).encode())
        next(pieces)
        pieces.close()
        assert bucket.info().streams == 1


def test_names_are_written_as_in_urls() -> None:
    assert str(StreamName("bucket", "s")) == "bucket/s"
    assert str(StreamName(None, "a/b")) == "a/b"
    assert pickle.loads(pickle.dumps(StreamName("bucket", "s"))) == StreamName("bucket", "s")


def test_a_position_that_is_gone_pickles() -> None:
    body = json.dumps({"code": "position-gone", "detail": "why"}).encode()
    error = refusal(410, "http://s", {"content-type": "application/problem+json"}, body)
    assert type(error) is PositionGone
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args) == (PositionGone, error.args)


# -- other servers, simulated ---------------------------------------------------------------------


def survey_of(*pages: dict[str, Any], since: str | None = None) -> tuple[Survey, list[str]]:
    """A survey of a server with these responses, and the queries that it received."""
    flow: Flow[Survey] = BucketFlows("http://server/bucket", Options()).survey(since=since)
    asked = []
    answers = iter(pages)
    effect = next(flow)
    try:
        while True:
            if isinstance(effect, Send):
                asked.append(effect.request.url.partition("?")[2])
                effect = flow.send(HttpResponse(200, {}, effect.request.url))
            else:
                assert isinstance(effect, Body)
                effect = flow.send(json.dumps(next(answers)).encode())
    except StopIteration as stop:
        return stop.value, asked


def item(name: str, status: str = "Open") -> dict[str, Any]:
    """As X§1.4 has it, and nothing more."""
    return {
        "stream_id": name,
        "status": status,
        "content_type": TEXT,
        "tail_offset": 3,
        "created_at_ms": 1,
        "last_write_at_ms": 2,
    }


def test_a_server_without_positions() -> None:
    """The whole bucket is surveyed each time; fields that it omits are None."""
    survey, asked = survey_of(
        {"streams": [item("a")], "next_cursor": "a", "has_more": True},
        {"streams": [item("b", "Closed")], "next_cursor": "b", "has_more": False},
    )
    assert survey.position is None
    assert asked == ["", "after=a"]
    (first, second) = survey.streams
    assert (first.closed, second.closed) == (False, True)
    assert (first.next_offset, first.earliest_offset, first.snapshot_offset) == (None, None, None)


def test_a_server_that_ignores_changed_since_is_recognized() -> None:
    with pytest.raises(AnswerInvalid):
        survey_of({"streams": [], "next_cursor": None, "has_more": False}, since="p-1")


def test_two_changes_of_a_stream_count_as_the_last_one() -> None:
    pages = [
        {"streams": [item("a"), item("b")], "has_more": True, "position": "p-2"},
        {
            "streams": [{"stream_id": "a", "status": "Deleted"}, item("c")],
            "has_more": True,
            "position": "p-4",
        },
        {"streams": [item("a")], "has_more": False, "position": "p-5"},
    ]
    survey, asked = survey_of(*pages, since="p-0")
    assert (ids(survey), survey.deleted, survey.position) == (["b", "c", "a"], [], "p-5")
    assert asked == ["changed_since=p-0", "changed_since=p-2", "changed_since=p-4"]
