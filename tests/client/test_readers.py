"""Readers: deadlines, cancellation, what they have reached, and the bytes that they give."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tailrace.client import (
    AsyncClient,
    Client,
    Conflict,
    Retry,
    SeqConflict,
    StreamClosed,
    TimedOut,
    Unreachable,
)
from tailrace.client.errors import refusal
from tests.client.tiers import async_first, sync_first
from tests.support.server import ServerProcess
from tests.support.streams import wait_until

TEXT = "text/plain"
JSON = "application/json"
HANG_S = 60.0
MODES = ("sse", "long-poll")

_names = itertools.count()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Its live reads wait for a minute: a reader that ends does not end because of the server."""
    with ServerProcess(tmp_path_factory.mktemp("quiet"), "--long-poll-s", "60") as server:
        yield server


@pytest.fixture
def calm(quiet: ServerProcess) -> Iterator[Client]:
    with Client(quiet.url) as client:
        yield client


def new(client: Any) -> Any:
    return client.stream(f"readers/{next(_names)}")


def ended_within(seconds: float, began: float) -> None:
    assert time.monotonic() - began < seconds


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize("live", MODES)
def test_a_blocking_tail_ends_at_its_deadline(calm: Client, live: Any) -> None:
    """It gives what is there, and then raises; the client can be used afterwards."""
    stream = new(calm)
    stream.create(TEXT, body=b"there")
    began = time.monotonic()
    tail = stream.tail(live=live, timeout_s=0.3)
    found: list[Any] = []
    with pytest.raises(TimedOut) as caught:
        found.extend(chunk.data for chunk in tail)
    ended_within(HANG_S / 2, began)
    assert time.monotonic() - began >= 0.3
    assert isinstance(caught.value, TimeoutError)
    assert "0.3 s" in str(caught.value)
    assert found == [b"there"]
    assert tail.next_offset == stream.head().next_offset
    assert list(tail) == []


def test_a_deadline_covers_every_kind_of_tail(calm: Client) -> None:
    stream = new(calm)
    stream.create(JSON, body=b"[1,2]")
    for tail, expected in (
        (stream.tail_json(timeout_s=0.2), [1, 2]),
        (stream.tail_text(timeout_s=0.2), None),
        (stream.tail_json("now", timeout_s=0.2), []),
    ):
        found: list[Any] = []
        with pytest.raises(TimedOut):
            found.extend(getattr(item, "value", None) for item in tail)
        assert expected is None or found == expected


def test_a_deadline_covers_retries_and_their_pauses() -> None:
    """Of a server that is down, however often the client would retry."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    retry = Retry(attempts_max=1000, first_s=30.0, longest_s=30.0)
    began = time.monotonic()
    with Client(f"http://127.0.0.1:{port}", retry=retry) as client, pytest.raises(TimedOut):
        list(client.stream("x").tail(timeout_s=0.2))
    ended_within(HANG_S / 3, began)


def test_a_deadline_covers_a_server_that_never_responds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url) as client, pytest.raises(TimedOut):
            list(client.stream("x").tail(timeout_s=0.2))
        ended_within(HANG_S / 3, began)


def test_a_tail_that_ends_before_its_deadline(calm: Client) -> None:
    stream = new(calm)
    stream.create(TEXT, body=b"all", closed=True)
    before = threading.active_count()
    assert [chunk.data for chunk in stream.tail(timeout_s=600)] == [b"all"]
    wait_until("its timer has ended, too", lambda: threading.active_count() <= before)


async def collect(reading: Any, found: list[Any]) -> None:
    async for item in reading:
        found.append(item)


@pytest.mark.parametrize("live", MODES)
def test_an_asynchronous_tail_ends_at_its_deadline(quiet: ServerProcess, live: Any) -> None:
    async def main() -> None:
        async with AsyncClient(quiet.url) as client:
            stream = new(client)
            await stream.create(TEXT, body=b"there")
            tail = stream.tail(live=live, timeout_s=0.3)
            found: list[Any] = []
            with pytest.raises(TimedOut):
                await collect(tail, found)
            assert [chunk.data for chunk in found] == [b"there"]
            assert tail.next_offset == (await stream.head()).next_offset

    asyncio.run(asyncio.wait_for(main(), HANG_S / 2))


def test_an_asynchronous_tail_can_be_cancelled(quiet: ServerProcess) -> None:
    """As any task: also by a timeout of the caller, which is not the tail's."""

    async def main() -> None:
        async with AsyncClient(quiet.url) as client:
            stream = new(client)
            await stream.create(TEXT)
            for seconds in (None, 50.0):
                tail = stream.tail(timeout_s=seconds)
                with pytest.raises(TimeoutError) as caught:
                    await asyncio.wait_for(collect(tail, []), 0.2)
                assert not isinstance(caught.value, TimedOut)
            assert (await stream.append(b"x")).next_offset

    asyncio.run(asyncio.wait_for(main(), HANG_S / 2))


# -- cancellation ----------------------------------------------------------------------------------


def cancelled(reading: Any, when: Callable[[], None]) -> list[Any]:
    """What a thread is given until another one cancels it; fails if it does not end soon."""
    given: list[Any] = []
    failed: list[BaseException] = []

    def consume() -> None:
        try:
            for item in reading:
                given.append(item)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    when()
    reading.cancel()
    thread.join(HANG_S / 3)
    assert not thread.is_alive()
    assert failed == []
    return given


@pytest.mark.parametrize("live", MODES)
def test_cancel_ends_a_wait_from_another_thread(calm: Client, live: Any) -> None:
    """At once and without an error; the client can be used afterwards."""
    stream = new(calm)
    stream.create(TEXT, body=b"there")
    tail = stream.tail(live=live)

    def waiting() -> None:
        wait_until("it has caught up", lambda: tail.next_offset is not None)
        # Time for the live request; without it the cancellation would come before.
        time.sleep(0.2)

    assert [chunk.data for chunk in cancelled(tail, waiting)] == [b"there"]
    assert list(tail) == []
    assert stream.append(b"more").next_offset == stream.head().next_offset


def test_cancel_ends_a_pause_between_attempts() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    retry = Retry(attempts_max=1000, first_s=300.0, longest_s=300.0)
    with Client(f"http://127.0.0.1:{port}", retry=retry) as client:
        assert cancelled(client.stream("x").tail(), lambda: time.sleep(0.1)) == []


def test_cancel_ends_a_loop_that_has_more_items(calm: Client) -> None:
    """Items that have arrived are not given any more. A second call does nothing."""
    stream = new(calm)
    stream.create(JSON)
    stream.append_json(*range(1000))
    reading = stream.read_json()
    found = []
    for item in reading:
        found.append(item.value)
        if item.value == 10:
            reading.cancel()
            reading.cancel()
    assert found == list(range(11))
    assert reading.next_offset is None


def test_cancel_before_the_start(calm: Client) -> None:
    stream = new(calm)
    stream.create(TEXT, body=b"there")
    tail = stream.tail()
    tail.cancel()
    assert list(tail) == []


# -- what a reader has reached ---------------------------------------------------------------------


@sync_first
def test_a_reader_tells_the_end_and_closure(kind: str, quiet: ServerProcess) -> None:
    """Also of an empty stream; before the first response it tells nothing."""

    async def main() -> None:
        async with AsyncClient(quiet.url) as client:
            stream = new(client)
            await stream.create(JSON)
            reading = stream.read_json()
            assert (reading.next_offset, reading.up_to_date, reading.closed) == (None, False, False)
            assert [item async for item in reading] == []
            tail = (await stream.head()).next_offset
            assert (reading.next_offset, reading.up_to_date, reading.closed) == (tail, True, False)
            await stream.append_json(1, 2, close=True)
            reading = stream.read_json()
            assert [item.value async for item in reading] == [1, 2]
            tail = (await stream.head()).next_offset
            assert (reading.next_offset, reading.up_to_date, reading.closed) == (tail, True, True)

    if kind == "async":
        asyncio.run(asyncio.wait_for(main(), HANG_S))
        return
    with Client(quiet.url) as client:
        stream = new(client)
        stream.create(JSON)
        reading = stream.read_json()
        assert (reading.next_offset, reading.up_to_date, reading.closed) == (None, False, False)
        assert list(reading) == []
        tail = stream.head().next_offset
        assert (reading.next_offset, reading.up_to_date, reading.closed) == (tail, True, False)
        stream.append_json(1, 2, close=True)
        reading = stream.read_json()
        assert next(reading).value == 1
        # The rest of the response is not given yet.
        assert reading.next_offset is None
        assert [item.value for item in reading] == [2]
        tail = stream.head().next_offset
        assert (reading.next_offset, reading.up_to_date, reading.closed) == (tail, True, True)


def test_a_large_stream_is_read_in_small_responses(calm: Client) -> None:
    """The memory of a reader does not grow with what a server would send at once."""
    stream = new(calm)
    stream.create("application/octet-stream")
    for _ in range(30):
        stream.append(bytes(100_000))
    sizes = [len(chunk.data) for chunk in stream.read()]
    assert sum(sizes) == 3_000_000
    assert max(sizes) <= 1 << 20
    assert len(stream.read_all().data) == 3_000_000


# -- bytes -----------------------------------------------------------------------------------------

LINES = b"a\r\nb\rc\nd\r\n"


@async_first
def test_a_tail_of_text_gives_the_same_bytes_caught_up_and_live(
    kind: str, quiet: ServerProcess
) -> None:
    async def main() -> list[bytes]:
        async with AsyncClient(quiet.url) as client:
            stream = new(client)
            await stream.create(TEXT, body=LINES)
            found = []
            async for chunk in stream.tail(timeout_s=HANG_S):
                found.append(chunk.data)
                if not chunk.closed:
                    await stream.append(LINES, close=True)
            return found

    if kind == "async":
        assert asyncio.run(main()) == [LINES, LINES]
        return
    with Client(quiet.url) as client:
        stream = new(client)
        stream.create(TEXT, body=LINES)
        found = []
        for chunk in stream.tail(timeout_s=HANG_S):
            found.append(chunk.data)
            if not chunk.closed:
                stream.append(LINES, close=True)
        assert found == [LINES, LINES]


# -- writes ----------------------------------------------------------------------------------------


def test_append_takes_the_type_that_the_handle_knows(calm: Client) -> None:
    """From a creation, a HEAD, a read or a tail; not from another handle."""
    stream = new(calm)
    stream.create(JSON)
    stream.append(b"1")
    path = stream.url.partition("/v1/stream/")[2]
    with pytest.raises(Conflict, match="octet-stream"):
        calm.stream(path).append(b"2")
    looked = calm.stream(path)
    looked.head()
    looked.append(b"2")
    read = calm.stream(path)
    assert [item.value for item in read.read_json()] == [1, 2]
    read.append(b"3")
    tailed = calm.stream(path)
    next(tailed.tail())
    tailed.append(b"4")
    with pytest.raises(Conflict, match="text/plain"):
        tailed.append(b"5", TEXT)
    assert stream.read_all().data == b"[1,2,3,4]"


def test_a_stream_seq_conflict_has_its_own_error(calm: Client) -> None:
    stream = new(calm)
    stream.create(TEXT)
    stream.append(b"a", seq="2")
    for seq in ("1", "2"):
        with pytest.raises(SeqConflict):
            stream.append(b"b", seq=seq)
    assert issubclass(SeqConflict, Conflict)
    assert stream.read_all().data == b"a"
    # Other servers have no code.
    other = refusal(409, "http://x/s", {"content-type": TEXT}, b"Sequence conflict")
    assert type(other) is SeqConflict
    assert type(refusal(409, "http://x/s", {}, b"Content-Type differs")) is Conflict
    closed = refusal(409, "http://x/s", {"stream-closed": "true"}, b"sequence conflict")
    assert type(closed) is StreamClosed


def test_a_producer_can_close_its_stream_twice(calm: Client) -> None:
    stream = new(calm)
    stream.create(TEXT)
    with stream.producer(content_type=TEXT) as producer:
        producer.append("last")
        producer.close_stream()
        producer.close_stream()
        with pytest.raises(ValueError, match="closed"):
            producer.append("more")
    assert stream.read_all().data == b"last"
    assert stream.head().closed
    stream.close()
    stream.close()


@pytest.mark.parametrize("producer_id", [None, "named"])
def test_closing_a_stream_that_another_writer_has_closed(
    calm: Client, producer_id: str | None
) -> None:
    """No error if nothing is left to store; otherwise it is one, and the messages are named."""
    stream = new(calm)
    stream.create(TEXT)
    stream.close()
    with stream.producer(content_type=TEXT, producer_id=producer_id) as producer:
        producer.close_stream()
        producer.close_stream()
    late = stream.producer(content_type=TEXT, producer_id=producer_id)
    late.append("late")
    with pytest.raises(StreamClosed):
        late.close_stream()
    assert late.undelivered() == [b"late"]
    with pytest.raises(StreamClosed):
        late.close()


def test_an_asynchronous_producer_can_close_its_stream_twice(quiet: ServerProcess) -> None:
    async def main() -> None:
        async with AsyncClient(quiet.url) as client:
            stream = new(client)
            await stream.create(TEXT)
            async with stream.producer(content_type=TEXT) as producer:
                await producer.append("last")
                await asyncio.gather(producer.close_stream(), producer.close_stream())
                await producer.close_stream()
            assert (await stream.read_all()).data == b"last"

    asyncio.run(asyncio.wait_for(main(), HANG_S))


def test_a_reader_that_is_cancelled_does_not_hide_other_errors(calm: Client) -> None:
    """Without a cancellation, a lost server is an error as before."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    retry = Retry(attempts_max=2, first_s=0.01)
    with Client(f"http://127.0.0.1:{port}", retry=retry) as client, pytest.raises(Unreachable):
        list(client.stream("x").tail(timeout_s=HANG_S))
