"""Creation, appends, closing and deletion, and failures during them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tailrace.client import Conflict, NotFound, Refused, ServerFailed, StreamClosed, TailraceError
from tests.client.conftest import connected
from tests.client.reference.writing import (
    BINARY,
    JSON,
    PATIENT,
    TEXT,
    Before,
    Writer,
    numbers,
    payload,
)
from tests.support.reference import ReferenceProcess


@pytest.mark.slow
class TestCreate:
    def test_creating_it_again_is_no_error(self, stream: Any) -> None:
        created = stream.create(TEXT, body=b"abc", ttl_s=60)
        assert (created.new, created.content_type, created.closed) == (True, TEXT, False)
        again = stream.create(TEXT, ttl_s=60)
        assert (again.new, again.next_offset) == (False, created.next_offset)
        head = stream.head()
        assert (head.content_type, head.next_offset, head.closed) == (
            TEXT,
            again.next_offset,
            False,
        )
        assert head.ttl_s == 60

    def test_creating_it_with_other_settings_is_a_conflict(self, stream: Any) -> None:
        stream.create(TEXT)
        for other in ({"content_type": JSON}, {"content_type": TEXT, "ttl_s": 60}):
            with pytest.raises(Conflict) as caught:
                stream.create(**other)
            assert (caught.value.status, caught.value.code) == (409, None)
            assert "already exists" in caught.value.detail

    def test_closed_and_with_a_body(self, stream: Any) -> None:
        created = stream.create(TEXT, body=b"all of it", closed=True)
        assert (created.new, created.closed) == (True, True)
        (chunk,) = stream.tail()
        assert (chunk.data, chunk.closed) == (b"all of it", True)

    def test_closed_and_empty(self, stream: Any) -> None:
        stream.create(TEXT, closed=True)
        assert [(chunk.data, chunk.closed) for chunk in stream.tail()] == [(b"", True)]

    def test_with_an_expiry_time(self, stream: Any) -> None:
        moment = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        stream.create(TEXT, expires_at=moment)
        assert stream.head().expires_at == moment

    def test_the_default_type_is_binary(self, stream: Any) -> None:
        assert stream.create().content_type == BINARY

    def test_an_invalid_body_is_rejected(self, stream: Any) -> None:
        with pytest.raises(Refused) as caught:
            stream.create(JSON, body=b"no JSON")
        assert (caught.value.status, caught.value.detail) == (400, "Invalid JSON")

    def test_paths_are_text(self, client: Any) -> None:
        stream = client.stream(f"é/{next(numbers)} ?#%/x")
        assert stream.create(TEXT, body=b"x").new
        assert [chunk.data for chunk in stream.read()] == [b"x"]


class TestWrite:
    def test_append_read_close(self, stream: Any) -> None:
        stream.create(TEXT)
        first = stream.append(b"one", TEXT)
        last = stream.append(b"two", TEXT, close=True)
        assert (first.closed, last.closed) == (False, True)
        assert payload(stream.read(), TEXT) == b"onetwo"
        assert payload(stream.read(first.next_offset), TEXT) == b"two"
        assert stream.close().next_offset == last.next_offset
        with pytest.raises(StreamClosed) as caught:
            stream.append(b"more", TEXT)
        assert caught.value.next_offset == last.next_offset

    def test_close_alone(self, stream: Any) -> None:
        offset = stream.create(TEXT, body=b"x").next_offset
        assert stream.close() == stream.close()
        head = stream.head()
        assert (head.next_offset, head.closed) == (offset, True)

    def test_append_json_appends_each_value_as_a_message(self, stream: Any) -> None:
        stream.create(JSON)
        stream.append_json({"é": 1}, [2], None)
        assert [item.value for item in stream.read_json()] == [{"é": 1}, [2], None]

    def test_append_of_another_type_is_a_conflict(self, stream: Any) -> None:
        stream.create(TEXT)
        with pytest.raises(Conflict) as caught:
            stream.append_json(1)
        assert type(caught.value) is Conflict

    def test_a_stream_seq_must_grow(self, stream: Any) -> None:
        stream.create(TEXT)
        stream.append(b"x", TEXT, seq="b")
        with pytest.raises(Conflict) as caught:
            stream.append(b"x", TEXT, seq="a")
        assert caught.value.detail == "Sequence conflict"

    def test_an_empty_append_is_refused(self, stream: Any) -> None:
        stream.create(TEXT)
        with pytest.raises(Refused) as caught:
            stream.append(b"", TEXT)
        assert (caught.value.status, caught.value.detail) == (400, "Empty body")

    def test_delete(self, stream: Any) -> None:
        stream.create(TEXT)
        stream.delete()
        operations: list[Callable[[], Any]] = [
            stream.head,
            stream.delete,
            stream.close,
            lambda: stream.append(b"x", TEXT),
            lambda: list(stream.read()),
            lambda: next(stream.tail()),
        ]
        for operation in operations:
            with pytest.raises(NotFound):
                operation()


class TestFailures:
    """Faults that the server injects on request."""

    def test_safe_requests_are_retried(
        self, kind: str, reference: ReferenceProcess, stream: Any
    ) -> None:
        stream.create(TEXT, body=b"x")
        path = stream.url.partition("/v1/stream/")[2]
        with connected(kind, reference.url, retry=PATIENT) as client:
            for fault in ({"status": 503}, {"status": 500, "count": 3}, {"dropConnection": True}):
                reference.fail_next(stream.url, **fault)
                assert payload(client.stream(path).read(), TEXT) == b"x"

    def test_an_append_that_may_have_been_stored_is_not_retried(
        self, reference: ReferenceProcess, stream: Any
    ) -> None:
        stream.create(TEXT)
        reference.fail_next(stream.url, status=503, retryAfter=7)
        with pytest.raises(ServerFailed) as caught:
            stream.append(b"x", TEXT)
        assert caught.value.retry_after_s == 7
        reference.fail_next(stream.url, dropConnection=True)
        with pytest.raises(TailraceError):
            stream.append(b"x", TEXT)
        assert payload(stream.read(), TEXT) == b""

    @pytest.mark.slow
    def test_a_tail_continues_after_failures(
        self, kind: str, reference: ReferenceProcess, stream: Any
    ) -> None:
        stream.create(TEXT, body=b"one")
        before = Before()
        path = stream.url.partition("/v1/stream/")[2]
        faults = ({"dropConnection": True}, {"status": 503}, {"dropConnection": True})
        for number, fault in enumerate(faults, 2):
            before.actions[number] = lambda fault=fault: reference.fail_next(stream.url, **fault)  # type: ignore[misc]
        options: dict[str, Any] = {"retry": PATIENT, "params": {"n": before}}
        with (
            connected(kind, reference.url, **options) as client,
            Writer(reference, stream.url) as writer,
        ):
            before.actions[5] = lambda: writer.begin([b"two", b"three"], TEXT)
            assert payload(client.stream(path).tail(), TEXT) == b"onetwothree"
        assert before.requests >= 5
