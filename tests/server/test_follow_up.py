"""X§3.3, X§3.4, X§4: after a bootstrap, clients continue with ordinary and live reads."""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.looping import for_each
from tests.support.publishing import (
    JSON,
    KINDS_ONCE,
    OCTETS,
    START,
    TEXT,
    bootstrap,
    new_stream,
    offset,
    publish,
    small_buffer_connection,
)
from tests.support.streams import Api, EventStream, check_problem, text_of

pytestmark = pytest.mark.parametrize("kind", KINDS_ONCE, indirect=True, scope="session")

COUNT = 300


def follow_by_sse(api: Api, path: str, at: str) -> Iterator[int]:
    """The numbers after an offset, up to a 410 or the end of the stream."""
    with api.sse(path, f"offset={at}", timeout=30.0) as events:
        if events.head.status == 410:
            return
        assert events.head.status == 200
        for event in events:
            if event.kind == "data":
                yield from event.json


def follow_by_long_poll(api: Api, path: str, at: str) -> Iterator[int]:
    with api.connect(30.0) as connection:
        while True:
            response = connection.request("GET", f"{path}?offset={at}&live=long-poll")
            if response.status == 410:
                return
            assert response.status in (200, 204), (response.status, response.body)
            yield from json.loads(response.body or b"[]")
            at = response.headers["stream-next-offset"]
            if response.headers.get("stream-closed") == "true":
                return


FOLLOW: dict[str, Callable[[Api, str, str], Iterator[int]]] = {
    "sse": follow_by_sse,
    "long-poll": follow_by_long_poll,
}


def write_numbers(api: Api, path: str, failures: list[BaseException], *, publishing: int) -> None:
    """Append 0, 1, 2, … and close; at times publish a snapshot that lists all of them."""
    writer = Api(api.server)
    try:
        for number in range(COUNT):
            at = writer.append(path, b"%d" % number, content_type=JSON)
            if publishing and number % publishing == publishing - 1:
                publish(writer, path, at, json.dumps(list(range(number + 1))).encode())
        writer.close_stream(path)
    except BaseException as error:
        failures.append(error)
    finally:
        writer.close()


@for_each("follow", FOLLOW.values())
@for_each("publishing", [0, 25])
def test_a_bootstrap_and_the_reads_after_it_have_each_message_once(
    api: Api, follow: Callable[[Api, str, str], Iterator[int]], publishing: int
) -> None:
    """
    Clients continue from the returned Stream-Next-Offset while a writer appends.

    Method: several clients start one after the other; each reads the snapshot, the updates and
    later messages. A client behind retention gets 410 and bootstraps again (X§3.4).
    """
    path = new_stream(api, JSON)
    failures: list[BaseException] = []
    writing = threading.Thread(
        target=write_numbers, args=(api, path, failures), kwargs={"publishing": publishing}
    )
    writing.start()

    def read() -> None:
        client = Api(api.server)
        numbers: list[int] = []
        try:
            while len(numbers) < COUNT:
                found = bootstrap(client, path)
                numbers = json.loads(found.snapshot.body or b"[]")
                numbers += [int(message) for message in found.messages]
                numbers.extend(follow(client, path, found.next_offset))
                assert numbers == list(range(len(numbers)))
            assert len(numbers) == COUNT
        except BaseException as error:
            failures.append(error)
        finally:
            client.close()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        # Each starts a little later than the previous one.
        bootstrap(api, path)
        reader.start()
    for thread in (writing, *readers):
        thread.join()
    assert not failures, failures


def test_binary_messages_after_a_bootstrap_are_base64_in_sse(api: Api) -> None:
    """X§4: bootstrap returns raw bytes; SSE returns base64, with its header."""
    path = new_stream(api, OCTETS, b"\x00abc", b"\xff\r\n")
    publish(api, path, offset(1, 4), b"\x01state")
    found = bootstrap(api, path)
    assert (found.snapshot.body, found.messages) == (b"\x01state", [b"\xff\r\n"])
    with api.sse(path, f"offset={found.next_offset}") as events:
        assert events.head.headers["stream-sse-data-encoding"] == "base64"
        assert events.next().kind == "control"
        tail = api.append(path, b"\xfe--\r\n", content_type=OCTETS)
        (data, _) = events.until(tail=tail)
        assert base64.b64decode(data.data, validate=True) == b"\xfe--\r\n"


# -- readers that fall behind retention ------------------------------------------------------------


@for_each("mode", ["", "&live=long-poll", "&live=sse"])
def test_a_reader_that_reconnects_behind_retention_is_410(api: Api, mode: str) -> None:
    """With Stream-Earliest-Offset; after a bootstrap it can continue."""
    path = new_stream(api, TEXT, b"abc", b"def", b"ghi")
    publish(api, path, offset(2, 6), b"state")
    response = api.get(path, f"offset={offset(1, 3)}{mode}")
    check_problem(response, 410, "offset-gone")
    assert response.headers["stream-earliest-offset"] == offset(2, 6)
    found = bootstrap(api, path)
    assert (found.snapshot_offset, found.messages) == (offset(2, 6), [b"ghi"])
    api.close_stream(path)
    assert api.get(path, f"offset={found.next_offset}{mode}").status in (200, 204)


def test_a_slow_event_stream_that_falls_behind_retention_ends_with_its_offset(api: Api) -> None:
    """
    Its last event is a control event with its offset and without upToDate.

    Method: a slow reader, more data than all buffers hold, then a snapshot at the tail. The reader
    got a prefix; a read from there is 410, and a bootstrap has the rest.
    """
    block = bytes(random.Random("slow").choices(b"0123456789abcdef", k=1 << 18))
    messages = [b"%03d" % number + block for number in range(48)]
    path = new_stream(api, TEXT)
    with small_buffer_connection(api) as connection:
        events = EventStream(connection, f"{path}?offset=-1&live=sse")
        assert events.next().kind == "control"
        tails = [START, *(api.append(path, message) for message in messages)]
        publish(api, path, tails[-1], b"state")
        seen = list(events)
    last = seen[-1]
    assert last.kind == "control"
    assert "upToDate" not in last.json
    assert "streamClosed" not in last.json
    assert "streamDeleted" not in last.json
    position = last.json["streamNextOffset"]
    count = tails.index(position)
    assert 0 < count < len(messages)
    assert text_of(seen).encode() == b"".join(messages[:count])
    for mode in ("", "&live=long-poll", "&live=sse"):
        response = api.get(path, f"offset={position}{mode}")
        check_problem(response, 410, "offset-gone")
        assert response.headers["stream-earliest-offset"] == tails[-1]
    found = bootstrap(api, path)
    assert (found.snapshot_offset, found.snapshot.body) == (tails[-1], b"state")
    assert (found.messages, found.next_offset) == ([], tails[-1])


def test_a_slow_event_stream_continues_if_it_is_not_behind_retention(api: Api) -> None:
    """A snapshot at an earlier offset does not affect it."""
    block = b"x" * (1 << 18)
    messages = [b"%03d" % number + block for number in range(32)]
    path = new_stream(api, TEXT, b"first")
    with small_buffer_connection(api) as connection:
        events = EventStream(connection, f"{path}?offset={offset(1, 5)}&live=sse")
        assert events.next().kind == "control"
        for message in messages:
            tail = api.append(path, message)
        publish(api, path, offset(1, 5), b"state")
        seen = events.until(tail=tail)
    assert text_of(seen).encode() == b"".join(messages)


# -- readers at the tail when a snapshot is published ----------------------------------------------


@for_each("size", [5, 1 << 19])
def test_a_snapshot_at_the_tail_does_not_end_an_event_stream_there(api: Api, size: int) -> None:
    """Its next event is the next message."""
    path = new_stream(api, TEXT, b"abc")
    with api.sse(path, f"offset={offset(1, 3)}") as events:
        assert events.next().json["streamNextOffset"] == offset(1, 3)
        for number in range(1, 6):
            publish(api, path, api.tail(path), b"s" * size)
            tail = api.append(path, b"%d" % number)
            data, control = events.next(), events.next()
            assert (data.kind, data.data) == ("data", f"{number}")
            assert (control.json["streamNextOffset"], control.json["upToDate"]) == (tail, True)


@for_each("at", ["tail", "now"])
def test_a_snapshot_at_the_tail_does_not_end_a_long_poll_there(api: Api, at: str) -> None:
    """The response has the next message."""
    path = new_stream(api, TEXT, b"abc")
    with api.connect(30.0) as connection:
        for number in range(5):
            tail = api.tail(path)
            where = tail if at == "tail" else "now"
            connection.send_request("GET", f"{path}?offset={where}&live=long-poll")
            publish(api, path, tail, b"state")
            next_tail = api.append(path, b"%d" % number)
            response = connection.read_response()
            assert (response.status, response.body) == (200, b"%d" % number)
            assert response.headers["stream-next-offset"] == next_tail


def test_a_long_poll_times_out_after_a_snapshot_at_the_tail(short: Api) -> None:
    """204, though a snapshot was published while it waited."""
    path = new_stream(short, TEXT, b"abc")
    with short.connect() as connection:
        connection.send_request("GET", f"{path}?offset={offset(1, 3)}&live=long-poll")
        publish(short, path, offset(1, 3), b"state")
        response = connection.read_response()
    assert response.status == 204
    assert response.headers["stream-next-offset"] == offset(1, 3)
    assert response.headers["stream-up-to-date"] == "true"


def test_readers_at_the_tail_get_every_message_despite_snapshots(api: Api) -> None:
    """A writer repeatedly appends and publishes a snapshot at the new tail."""
    path = new_stream(api, TEXT)
    texts: list[str] = []
    failures: list[BaseException] = []
    ready = threading.Semaphore(0)

    def read() -> None:
        try:
            with api.sse(path, f"offset={START}", timeout=30.0) as events:
                assert events.next().kind == "control"
                ready.release()
                texts.append(text_of(list(events)))
        except BaseException as error:
            failures.append(error)
            ready.release()

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for _ in readers:
        ready.acquire()
    for number in range(100):
        publish(api, path, api.append(path, b"<%d>" % number), b"state")
    api.close_stream(path)
    for reader in readers:
        reader.join()
    assert not failures, failures
    assert texts == ["".join(f"<{number}>" for number in range(100))] * 4
