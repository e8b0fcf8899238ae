"""Every operation on streams, by both clients, against a real server."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tailrace.client import (
    AnswerInvalid,
    AsyncClient,
    Client,
    Conflict,
    NotFound,
    Retry,
    StreamClosed,
    Unreachable,
)
from tests.client.conftest import connected
from tests.client.tiers import async_first, slow
from tests.support.server import ServerProcess

TEXT = "text/plain"
JSON = "application/json"
BINARY = "application/octet-stream"


def test_create_describes_the_stream(stream: Any) -> None:
    created = stream.create(TEXT, body=b"abc", ttl_s=60)
    assert (created.new, created.content_type, created.closed) == (True, TEXT, False)
    again = stream.create(TEXT, ttl_s=60)
    assert (again.new, again.next_offset) == (False, created.next_offset)
    head = stream.head()
    assert (head.content_type, head.next_offset, head.closed) == (TEXT, again.next_offset, False)
    assert 0 < head.ttl_s <= 60


def test_create_with_another_type_is_a_conflict(stream: Any) -> None:
    stream.create(TEXT)
    with pytest.raises(Conflict) as caught:
        stream.create(JSON)
    assert (caught.value.status, caught.value.code) == (409, "stream-exists")
    assert "text/plain" in str(caught.value)


def test_append_read_close(stream: Any) -> None:
    stream.create(TEXT)
    first = stream.append(b"one", TEXT)
    last = stream.append(b"two", TEXT, close=True)
    assert (first.closed, last.closed) == (False, True)
    assert b"".join(chunk.data for chunk in stream.read()) == b"onetwo"
    assert b"".join(chunk.data for chunk in stream.read(first.next_offset)) == b"two"
    assert stream.close().next_offset == last.next_offset
    with pytest.raises(StreamClosed) as caught:
        stream.append(b"more", TEXT)
    assert caught.value.next_offset == last.next_offset


def test_append_json_appends_each_value_as_a_message(stream: Any) -> None:
    stream.create(JSON)
    stream.append_json({"é": 1}, [2], None)
    (chunk,) = stream.read()
    assert json.loads(chunk.data) == [{"é": 1}, [2], None]


def test_a_stream_seq_must_grow(stream: Any) -> None:
    stream.create(TEXT)
    stream.append(b"x", TEXT, seq="b")
    with pytest.raises(Conflict):
        stream.append(b"x", TEXT, seq="a")


def test_read_follows_chunks_to_the_tail(stream: Any) -> None:
    stream.create(BINARY)
    sent = [bytes([at]) * 700 for at in range(10)]
    for data in sent:
        stream.append(data)
    chunks = list(stream.read())
    assert len(chunks) > 1
    assert b"".join(chunk.data for chunk in chunks) == b"".join(sent)
    assert [chunk.up_to_date for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert list(stream.read(chunks[-1].next_offset)) == []


def test_operations_on_a_missing_stream(stream: Any) -> None:
    for operation in (stream.head, stream.delete, stream.close, lambda: list(stream.read())):
        with pytest.raises(NotFound):
            operation()
    with pytest.raises(NotFound):
        next(stream.tail())


def test_delete(stream: Any) -> None:
    stream.create(TEXT)
    stream.delete()
    with pytest.raises(NotFound):
        stream.head()


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        *(("sync", TEXT), ("async", JSON), ("async", BINARY)),
        *(slow("async", TEXT), slow("sync", JSON), slow("sync", BINARY)),
    ],
)
def test_tail_catches_up_follows_and_ends_at_closure(
    stream: Any, server: ServerProcess, content_type: str
) -> None:
    """Across several recycled connections: each message once, in order, then the end."""
    stream.create(content_type)
    path = stream.url.partition("/v1/stream/")[2]
    before = [b"%d" % at for at in range(5)]
    after = [b"%d" % at for at in range(5, 40)]
    for message in before:
        stream.append(message, content_type)

    def write() -> None:
        with Client(f"http://127.0.0.1:{server.port}") as client:
            for message in after:
                client.stream(path).append(message, content_type)
                pause.wait(0.05)
            client.stream(path).close()

    pause = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    chunks = list(stream.tail())
    writer.join()
    if content_type == JSON:
        found = [item for chunk in chunks if chunk.data for item in json.loads(chunk.data)]
        assert found == list(range(40))
    else:
        assert b"".join(chunk.data for chunk in chunks) == b"".join(before + after)
    assert [chunk.closed for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].next_offset == stream.head().next_offset


def test_tail_resumes_at_an_offset(stream: Any) -> None:
    stream.create(TEXT)
    first = stream.append(b"one", TEXT)
    stream.append(b"two", TEXT, close=True)
    assert b"".join(chunk.data for chunk in stream.tail(first.next_offset)) == b"two"


def test_tail_of_a_stream_that_is_deleted(stream: Any) -> None:
    stream.create(TEXT, body=b"x")
    tail = stream.tail()
    assert next(tail).data == b"x"
    stream.delete()
    with pytest.raises(NotFound):
        next(tail)


def test_a_reader_may_stop_at_any_time(stream: Any) -> None:
    """The same client can be used afterwards."""
    stream.create(TEXT, body=b"x")
    for chunk in stream.tail():
        assert chunk.data == b"x"
        break
    assert stream.append(b"y", TEXT).next_offset == stream.head().next_offset


def test_callable_headers_and_parameters(kind: str, server: ServerProcess) -> None:
    """Fresh tokens: the value is computed for every request."""
    asked: list[int] = []

    def token() -> str:
        asked.append(len(asked))
        return f"token-{len(asked)}"

    url = f"http://127.0.0.1:{server.port}"
    with connected(kind, url, headers={"Authorization": token}, params={"key": token}) as client:
        stream = client.stream(f"tokens/{kind}")
        stream.create(TEXT)
        stream.head()
    assert len(asked) == 4


def test_paths_are_text(client: Any, kind: str) -> None:
    stream = client.stream(f"é/{kind} ?#%/x")
    stream.create(TEXT, body=b"x")
    assert [chunk.data for chunk in stream.read()] == [b"x"]


def test_a_server_that_is_down_is_unreachable(kind: str) -> None:
    retry = Retry(attempts_max=2, first_s=0.01)
    with connected(kind, "http://127.0.0.1:9", retry=retry) as client:
        with pytest.raises(Unreachable) as caught:
            client.stream("x").head()
        assert not caught.value.sent


@async_first
def test_tail_continues_after_a_crash_of_the_server(kind: str, tmp_path: Path) -> None:
    """SIGKILL and a restart between two messages: no gap and no repeat."""
    retry = Retry(attempts_max=50, first_s=0.05, longest_s=0.2)
    with ServerProcess(tmp_path / "data") as server:
        url = f"http://127.0.0.1:{server.port}"
        with connected(kind, url, retry=retry) as client, Client(url, retry=retry) as writer:
            stream = client.stream("s")
            stream.create(TEXT, body=b"one")
            tail = stream.tail()
            assert next(tail).data == b"one"
            for data in (b"two", b"three"):
                server.kill()
                server.start()
                writer.stream("s").append(data, TEXT)
                assert next(tail).data == data
            writer.stream("s").close()
            assert next(tail).closed
            tail.close()


def test_each_json_message_has_the_offset_to_resume_after_it(stream: Any) -> None:
    """Also inside a batch: reads and tails resume without gap or repeat."""
    stream.create(JSON)
    stream.append_json(*range(5))
    stream.append_json(*range(5, 7))
    stream.append_json(7, close=True)
    items = list(stream.read_json())
    assert [item.value for item in items] == list(range(8))
    for at, item in enumerate(items, 1):
        rest = list(range(at, 8))
        assert [found.value for found in stream.read_json(item.next_offset)] == rest
        assert [found.value for found in stream.tail_json(item.next_offset)] == rest


def test_an_invalid_place_is_rejected_at_once(stream: Any) -> None:
    with pytest.raises(ValueError, match="not an offset"):
        stream.read_json("-1,x")


def test_messages_of_a_stream_that_is_not_json(stream: Any) -> None:
    stream.create(TEXT, body=b"no JSON")
    with pytest.raises(AnswerInvalid):
        list(stream.read_json())


def test_text_is_split_between_characters(stream: Any) -> None:
    """Wherever appends split it; an incomplete character at the end is replaced."""
    stream.create(BINARY)
    data = "aé🌊z".encode()
    for at in range(len(data)):
        stream.append(data[at : at + 1])
    stream.append(b"\xf0\x9f", close=True)
    texts = [chunk.text for chunk in stream.tail_text()]
    assert "".join(texts) == "aé🌊z�"


def test_read_all_returns_one_chunk(stream: Any) -> None:
    stream.create(BINARY)
    sent = [bytes([at]) * 700 for at in range(5)]
    for data in sent:
        stream.append(data)
    whole = stream.read_all()
    assert (whole.data, whole.up_to_date) == (b"".join(sent), True)
    assert whole.next_offset == stream.head().next_offset
    assert stream.read_all(whole.next_offset).data == b""


def test_read_all_of_json_returns_one_array(stream: Any) -> None:
    stream.create(JSON)
    assert stream.read_all().data == b"[]"
    for at in range(30):
        stream.append_json({"n": at, "text": "x" * 90})
    assert [item["n"] for item in json.loads(stream.read_all().data)] == list(range(30))


def test_read_text_does_not_split_characters(stream: Any) -> None:
    stream.create(TEXT)
    sent = "é" * 999
    stream.append(sent.encode()[:333], TEXT)
    stream.append(sent.encode()[333:], TEXT)
    assert "".join(chunk.text for chunk in stream.read_text()) == sent


@pytest.mark.parametrize(
    "url", ["localhost:4437", "", "ftp://host", "http://", "http://host:port", "http://host:0"]
)
def test_an_invalid_url_is_rejected_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="not a URL such as"):
        Client(url)
    with pytest.raises(ValueError, match="not a URL such as"):
        AsyncClient(url)


@pytest.mark.parametrize("rest", ["host", "host:port", "host:0", "[host"])
def test_an_invalid_url_does_not_repeat_its_password(rest: str) -> None:
    for url in (f"http://me:secret@{rest}", f"me:secret@{rest}", f"ftp://me:secret@{rest}"):
        with pytest.raises(ValueError, match="URL") as raised:
            Client(url)
        assert "secret" not in str(raised.value)


def test_a_whole_url_is_used_unchanged(client: Any, server: ServerProcess) -> None:
    stream = client.stream(f"http://127.0.0.1:{server.port}/v1/stream/client/whole%20url")
    stream.create(TEXT)
    assert stream.head().content_type == TEXT
    assert not client.stream("client/whole url").create(TEXT).new


def test_mutable_buffers_are_copied(stream: Any) -> None:
    stream.create(TEXT, body="é")
    stream.append("ü", TEXT)
    data = bytearray(b"abc")
    with stream.producer(content_type=TEXT, linger_s=60) as producer:
        producer.append(data)
        data[:] = b"xyz"
        producer.append(memoryview(b"def"))
    assert stream.read_all().data.decode() == "éüabcdef"
    with pytest.raises(TypeError):
        stream.append(7, TEXT)


def test_resuming_never_splits_a_character(stream: Any) -> None:
    """A reader that resumes there receives some text again, and misses nothing."""
    stream.create(TEXT)
    first = stream.append(b"x", TEXT).next_offset
    stream.append("aé".encode()[:2], TEXT)
    (chunk,) = stream.read_text(first)
    assert (chunk.text, chunk.next_offset) == ("a", first)
    stream.append("é!".encode()[1:], TEXT, close=True)
    assert "".join(found.text for found in stream.read_text(chunk.next_offset)) == "aé!"
    assert "".join(found.text for found in stream.tail_text()) == "xaé!"


def test_append_json_without_values(stream: Any) -> None:
    stream.create(JSON)
    with pytest.raises(ValueError, match="nothing"):
        stream.append_json()
    assert stream.append_json(close=True).closed


def test_a_reader_of_an_empty_json_stream_gets_nothing(stream: Any) -> None:
    stream.create(JSON)
    assert list(stream.read()) == []
