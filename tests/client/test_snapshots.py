"""Snapshots and bootstrap, by both clients."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tailrace.client import Chunk, Conflict, NotFound, OffsetGone, Snapshot

JSON = "application/json"
BINARY = "application/octet-stream"
_numbers = itertools.count()


@pytest.fixture
def stream(client: Any) -> Any:
    """A stream of three JSON messages in a bucket of its own."""
    bucket = client.bucket(f"snapshots-{next(_numbers)}")
    bucket.create()
    made = bucket.stream("s")
    made.create(JSON)
    made.append_json(1, 2, 3)
    return made


def test_publish_and_read(stream: Any) -> None:
    tail = stream.head().next_offset
    with pytest.raises(NotFound):
        stream.snapshot()
    stream.publish_snapshot(b"six", tail, "text/plain")
    stream.publish_snapshot(b"six", tail, "text/plain")
    found = stream.snapshot()
    assert (found.data, found.content_type, found.offset) == (b"six", "text/plain", tail)
    assert found.up_to_date
    head = stream.head()
    assert (head.snapshot_offset, head.earliest_offset) == (tail, tail)
    with pytest.raises(Conflict):
        stream.publish_snapshot(b"seven", tail)
    with pytest.raises(OffsetGone) as caught:
        list(stream.read())
    assert caught.value.earliest_offset == tail


def test_bootstrap_without_a_snapshot(stream: Any) -> None:
    found = stream.bootstrap()
    assert (found.snapshot, found.messages, found.content_type) == (None, [b"1", b"2", b"3"], JSON)
    assert found.next_offset == stream.head().next_offset


def test_bootstrap_then_tail_sees_everything_once(stream: Any) -> None:
    stream.publish_snapshot(b"six", stream.head().next_offset)
    stream.append_json(4)
    found = stream.bootstrap()
    assert found.snapshot.data == b"six"
    assert found.messages == [b"4"]
    stream.append_json(5, close=True)
    assert [item.value for item in stream.tail_json(found.next_offset)] == [5]


def test_bootstrap_as_it_arrives(stream: Any) -> None:
    """A snapshot of some megabytes, and messages of any bytes."""
    tail = stream.head().next_offset
    large = bytes(range(256)) * 12_000
    stream.publish_snapshot(large, tail)
    stream.append_json("\r\n--", {"a": None})
    parts = list(stream.bootstrap_parts())
    assert [part.is_snapshot for part in parts] == [True, False, False]
    assert [part.data for part in parts] == [large, b'"\\r\\n--"', b'{"a":null}']
    assert [part.content_type for part in parts] == [BINARY, JSON, JSON]
    assert {part.next_offset for part in parts} == {stream.head().next_offset}


class TestReadOrBootstrap:
    """A reader whose offset is gone receives the snapshot and continues after it."""

    def shortened(self, stream: Any) -> None:
        stream.publish_snapshot(b"six", stream.head().next_offset, "text/plain")
        stream.append_json(4, 5)

    def test_without_a_snapshot_it_is_a_read(self, stream: Any) -> None:
        assert [item.value for item in stream.read_json_or_bootstrap()] == [1, 2, 3]
        (chunk,) = stream.read_or_bootstrap()
        assert isinstance(chunk, Chunk)

    def test_from_the_beginning(self, stream: Any) -> None:
        self.shortened(stream)
        snapshot, *items = stream.read_json_or_bootstrap()
        assert isinstance(snapshot, Snapshot)
        assert snapshot.data == b"six"
        assert [item.value for item in items] == [4, 5]
        snapshot, chunk = stream.read_or_bootstrap()
        assert (snapshot.data, chunk.data) == (b"six", b"[4,5]")

    def test_from_an_offset_that_is_gone(self, stream: Any) -> None:
        first, *_ = stream.read_json()
        self.shortened(stream)
        snapshot, *items = stream.read_json_or_bootstrap(first.next_offset)
        assert snapshot.offset == stream.head().snapshot_offset
        assert [item.value for item in items] == [4, 5]

    def test_retained_messages_need_no_snapshot(self, stream: Any) -> None:
        offset = stream.head().next_offset
        self.shortened(stream)
        assert [item.value for item in stream.read_json_or_bootstrap(offset)] == [4, 5]

    def test_a_live_reader_that_falls_behind_a_snapshot(self, stream: Any) -> None:
        """It pauses after the first message, and the messages that follow are dropped."""
        for number in range(4, 40):
            stream.append_json({"n": number, "text": "x" * 90})
        reader = stream.read_json_or_bootstrap(live=True)
        assert next(reader).value == 1
        stream.publish_snapshot(b"sum", stream.head().next_offset, "text/plain")
        stream.append_json("after", close=True)
        rest = list(reader)
        at = next(at for at, found in enumerate(rest) if isinstance(found, Snapshot))
        assert rest[at].data == b"sum"
        assert [item.value for item in rest[at + 1 :]] == ["after"]

    def test_a_missing_stream(self, client: Any) -> None:
        with pytest.raises(NotFound):
            list(client.stream("nowhere/at-all").read_or_bootstrap())
