"""
The content of a read in pieces, over every store.

Goal: the pieces are exactly what the state has between two boundaries, in JSON mode as one array,
whatever the sizes of messages and batches are, and whatever is deleted meanwhile. Method: small
limits, random appends, and the same range as a plain join of the messages.
"""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.engine.base import Store
from tailrace.engine.errors import StorageDamaged
from tailrace.engine.read import Slice, read_records
from tailrace.protocol.offset import START, Offset
from tailrace.protocol.state import StreamState
from tailrace.server.handlers import content
from tailrace.server.handlers.content import ContentReader, content_length
from tests.contract.harness import World

KEY = b"\0s"
JSON = "application/json"
APPENDS = st.lists(
    st.lists(st.integers(1, 90), min_size=1, max_size=8), min_size=1, max_size=8
)  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large message has more than 60 bytes, and a piece about 20."""
    monkeypatch.setattr(content, "PIECE_BYTES", 20)
    monkeypatch.setattr(content, "LARGE_BYTES", 60)


def pieces(world: World, state: StreamState, start: Offset, end: Offset) -> list[bytes]:
    async def collect() -> list[bytes]:
        return [piece async for piece in ContentReader(world.engine).pieces(state, start, end)]

    return world.run(collect())


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(appends=APPENDS, is_json=st.booleans(), bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_the_pieces_are_what_is_stored(
    world: World, appends: list[list[int]], is_json: bool, bounds: tuple[float, float]
) -> None:
    world.create(KEY, content_type=JSON if is_json else "text/plain")
    messages: list[bytes] = []
    for number, sizes in enumerate(appends):
        if is_json:
            values = [f"{number % 10}" * size for size in sizes]
            body = json.dumps(values, separators=(",", ":")).encode()
            world.append(KEY, body, content_type=JSON)
            messages += [json.dumps(value).encode() + b"," for value in values]
        else:
            world.append(KEY, b"%d" % (number % 10) * sizes[0])
            messages.append(b"%d" % (number % 10) * sizes[0])
    boundaries = [START]
    for message in messages:
        boundaries.append(Offset(boundaries[-1].message + 1, boundaries[-1].byte + len(message)))
    first, last = sorted(int(bound * len(messages)) for bound in bounds)
    state = world.find(KEY)
    stored = b"".join(messages[first:last])
    expected = b"[" + stored[:-1] + b"]" if is_json else stored
    start, end = boundaries[first], boundaries[last]
    if first != last:
        found = pieces(world, state, start, end)
        assert b"".join(found) == expected
        # The comma or the brackets may be added.
        assert max(map(len, found)) <= 60 + 2
        assert content_length(state, start, end) == len(expected)
    world.delete(KEY)


def test_a_deleted_stream_is_read_to_its_end(world: World) -> None:
    """Its data stays until the pin is released, and not longer."""
    world.create(KEY)
    for number in range(50):
        world.append(KEY, b"%03d" % number * 10)
    state = world.find(KEY)
    release = world.engine.pins.hold(state)
    reading = ContentReader(world.engine).pieces(state, START, state.tail)

    async def begin() -> bytes:
        return await anext(aiter(reading))

    async def rest() -> list[bytes]:
        return [piece async for piece in reading]

    found = [world.run(begin())]
    world.delete(KEY)
    world.sweep()
    found += world.run(rest())
    assert b"".join(found) == b"".join(b"%03d" % number * 10 for number in range(50))
    release()
    world.sweep()
    with pytest.raises(StorageDamaged):
        pieces(world, state, START, state.tail)


def test_a_large_message_is_kept_for_its_next_piece_only_for_a_while(world: World) -> None:
    world.create(KEY, body=b"large" * 100)
    state = world.find(KEY)

    async def read() -> tuple[bytes, bool, bool]:
        reader = ContentReader(world.engine)
        found = b"".join([piece async for piece in reader.pieces(state, START, state.tail)])
        kept = bool(reader._large)
        assert reader._timer is not None
        reader._timer.cancel()
        reader._forget()
        return found, kept, bool(reader._large)

    assert world.run(read()) == (b"large" * 100, True, False)


def test_readers_of_several_large_messages_read_each_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is read again for each of its pieces would block the event loop."""
    states = []
    for number in range(3):
        key = KEY + b"%d" % number
        world.create(key)
        world.append(key, b"x" * 1000)
        states.append(world.engine.find(key).durable)
    starts: list[int] = []

    def counting(store: Store, state: StreamState, *args: Any, **options: Any) -> Slice:
        starts.append(state.id)
        return read_records(store, state, *args, **options)

    monkeypatch.setattr(content, "read_records", counting)
    reader = ContentReader(world.engine)

    async def read(state: StreamState) -> bytes:
        return b"".join([piece async for piece in reader.pieces(state, START, state.tail)])

    async def read_all() -> list[bytes]:
        return await asyncio.gather(*[read(state) for state in states if state is not None])

    assert world.run(read_all()) == [b"x" * 1000] * 3
    assert len(starts) == len(set(starts)) == 3
    monkeypatch.setattr(content, "LARGE_KEPT_BYTES", 1500)
    starts.clear()
    reader = ContentReader(world.engine)
    assert world.run(read_all()) == [b"x" * 1000] * 3
    assert len(starts) > 3
