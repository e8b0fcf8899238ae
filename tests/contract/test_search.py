"""
Offsets by message, byte and time, over every store.

Goal: a search finds what a walk over all messages finds, wherever it looks. Method: streams of
random appends, some of them trimmed by a snapshot inside a batch, and a plain list beside them.
"""

import hashlib
import json
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.engine.errors import StorageDamaged
from tailrace.engine.search import align, end_within, find_byte, find_message, find_time
from tailrace.protocol.errors import OffsetBeyondTail, OffsetGone
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import Publish, SnapshotInfo, StreamState
from tests.contract.conftest import OpenWorld
from tests.contract.harness import START_MS, World

KEY = b"\0s"
# How long each message of an append is, and how much later than the one before it that comes.
APPENDS = st.lists(
    st.tuples(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 3)),
    max_size=12,
)


class Message(NamedTuple):
    start: Offset
    end: Offset
    time: int


def fill(world: World, appends: list[tuple[list[int], int]]) -> list[Message]:
    """A JSON stream with these messages, and where each of them is."""
    world.create(KEY, content_type="application/json")
    messages: list[Message] = []
    at = START
    for sizes, later in appends:
        world.now += later
        body = json.dumps(["x" * size for size in sizes], separators=(",", ":")).encode()
        world.append(KEY, body, content_type="application/json")
        for size in sizes:
            # With its quotation marks and the comma that it is stored with.
            end = Offset(at.message + 1, at.byte + size + 3)
            messages.append(Message(at, end, world.now))
            at = end
    return messages


def trim(world: World, at: Offset) -> StreamState:
    content = b"snapshot"
    digest = hashlib.sha256(content).digest()
    snapshot = SnapshotInfo(at, world.engine.take_id(), len(content), "a/b", digest, True)
    return world.state(KEY, Publish(world.find(KEY).id, snapshot, content))


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(appends=APPENDS, cut=st.floats(0, 1))
def test_a_search_finds_what_a_walk_finds(
    world: World, appends: list[tuple[list[int], int]], cut: float
) -> None:
    messages = fill(world, appends)
    boundaries = [START, *(message.end for message in messages)]
    if cut > 0.5:
        boundaries = boundaries[int((len(boundaries) - 1) * (cut - 0.5) * 2) :]
        trim(world, boundaries[0])
        world.sweep()
    state = world.find(KEY)
    earliest, tail = boundaries[0], boundaries[-1]
    for number in range(-1, tail.message + 2):
        kept = min(max(number, earliest.message), tail.message)
        expected = next(item for item in boundaries if item.message == kept)
        assert find_message(world.store, state, number) == expected
    for byte in range(-1, tail.byte + 2):
        at_or_before = [item for item in boundaries if item.byte <= byte]
        expected = at_or_before[-1] if at_or_before else earliest
        assert find_byte(world.store, state, byte) == expected
    for time in range(START_MS - 1, world.now + 2):
        later = [item.start for item in messages if item.time >= time]
        expected = max(earliest, later[0]) if later else tail
        assert find_time(world.store, state, time) == expected
    world.delete(KEY)
    world.now = START_MS


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(appends=APPENDS, cut=st.floats(0, 1), seed=st.integers(0, 1000))
def test_a_read_starts_and_ends_where_a_walk_says(
    world: World, appends: list[tuple[list[int], int]], cut: float, seed: int
) -> None:
    """The last boundary at or before an offset, and the last one within a size."""
    numbers = Random(seed)
    messages = fill(world, appends)
    boundaries = [START, *(message.end for message in messages)]
    if cut > 0.5:
        boundaries = boundaries[int((len(boundaries) - 1) * (cut - 0.5) * 2) :]
        trim(world, boundaries[0])
        world.sweep()
    state = world.find(KEY)
    earliest, tail = boundaries[0], boundaries[-1]
    for _ in range(30):
        message = numbers.randint(0, tail.message + 2)
        offset = Offset(message, numbers.randint(0, tail.byte + 3))
        if offset.message > tail.message or offset.byte > tail.byte + 1:
            with pytest.raises(OffsetBeyondTail):
                align(world.store, state, offset)
        elif offset.message < earliest.message or offset.byte < earliest.byte:
            with pytest.raises(OffsetGone):
                align(world.store, state, offset)
        else:
            expected = max(
                at for at in boundaries if at.message <= message and at.byte <= offset.byte
            )
            assert align(world.store, state, offset) == expected
    for start in boundaries:
        size = numbers.randint(1, tail.byte + 2)
        within = [at for at in boundaries if start < at and at.byte - start.byte <= size]
        after = [at for at in boundaries if start < at]
        expected = within[-1] if within else after[0] if after else start
        assert end_within(world.store, state, start, size) == expected
    world.delete(KEY)
    world.now = START_MS


def test_an_empty_stream_has_one_place(world: World) -> None:
    world.create(KEY)
    state = world.find(KEY)
    for find in (find_message, find_byte, find_time):
        for value in (0, 1, START_MS, 1 << 60):
            assert find(world.store, state, value) == START


def test_a_closure_is_not_a_message(world: World) -> None:
    """Its record lies at the tail and has no bytes."""
    world.create(KEY, body=b"abc")
    world.now += 1
    world.append(KEY, b"", closes=True)
    state = world.find(KEY)
    assert find_time(world.store, state, START_MS) == START
    assert find_time(world.store, state, START_MS + 1) == Offset(1, 3)
    assert find_message(world.store, state, 1) == find_byte(world.store, state, 3) == Offset(1, 3)


def test_few_records_are_read_of_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the sizes: 600 records, and a look at some tens of them."""
    messages = fill(world, [([1 + at * 7 % 40], at % 2) for at in range(600)])
    state = world.find(KEY)
    looks = 0
    scan = world.store.scan

    def counted(stream_id: int, start: int, end: int):  # type: ignore[no-untyped-def]
        nonlocal looks
        looks += 1
        return scan(stream_id, start, end)

    monkeypatch.setattr(world.store, "scan", counted)
    for message in messages[::50]:
        looks = 0
        assert find_message(world.store, state, message.start.message) == message.start
        assert find_byte(world.store, state, message.start.byte) == message.start
        found = find_time(world.store, state, message.time)
        assert found == next(item.start for item in messages if item.time == message.time)
        assert looks < 50


def test_what_is_not_there_is_damage(open_world: OpenWorld) -> None:
    world = open_world()
    world.create(KEY, body=b"abc")
    state = world.find(KEY)
    missing = StreamState(
        id=state.id + 1000,
        content_type="text/plain",
        json=False,
        created_at=0,
        touched_at=0,
        written_at=state.written_at,
        tail=Offset(2, 6),
    )
    for find in (find_message, find_byte, find_time):
        with pytest.raises(StorageDamaged):
            find(world.store, missing, 1)
