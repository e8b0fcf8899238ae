"""Reading and tailing: over SSE and long-poll, across recycled connections and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.client import AnswerInvalid, Client, NotFound, Refused
from tests.client.conftest import connected
from tests.client.reference.writing import BINARY, JSON, PATIENT, TEXT, Before, Writer, payload
from tests.client.tiers import slow
from tests.support.reference import ReferenceProcess, install


class TestTail:
    @pytest.mark.parametrize(
        ("content_type", "mode"),
        [
            *((JSON, "sse"), (BINARY, "long-poll"), slow(TEXT, "sse"), slow(TEXT, "long-poll")),
            *(slow(BINARY, "sse"), slow(JSON, "long-poll")),
        ],
    )
    def test_it_catches_up_follows_and_ends_at_closure(
        self,
        kind: str,
        reference: ReferenceProcess,
        stream: Any,
        content_type: str,
        mode: str,
    ) -> None:
        """Across several recycled connections: each message once, in order, then the end."""
        messages = [b"%d" % at for at in range(40)]
        stream.create(content_type)
        for message in messages[:5]:
            stream.append(message, content_type)
        before = Before()
        if mode == "long-poll" and content_type != TEXT:
            # Refused once, SSE is not asked for again. A tail of text uses long-polls anyway.
            before.actions[2] = lambda: reference.fail_next(stream.url, status=400, method="GET")
        path = stream.url.partition("/v1/stream/")[2]
        with (
            connected(kind, reference.url, params={"n": before}) as client,
            Writer(reference, stream.url) as writer,
        ):
            writer.begin(messages[5:], content_type)
            live = "sse" if mode == "sse" else "auto"
            chunks = list(client.stream(path).tail(live=live))
        found = payload(chunks, content_type)
        assert found == (list(range(40)) if content_type == JSON else b"".join(messages))
        assert [chunk.closed for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert chunks[-1].next_offset == stream.head().next_offset
        assert before.requests > 3

    @pytest.mark.parametrize("content_type", [TEXT, JSON, BINARY])
    def test_several_appends_before_one_control_event(
        self, kind: str, reference: ReferenceProcess, stream: Any, content_type: str
    ) -> None:
        """This server sends a data event for each append, and one control event after them all."""
        stream.create(content_type)
        path = stream.url.partition("/v1/stream/")[2]
        before = Before()
        with (
            connected(kind, reference.url, params={"n": before}) as client,
            Writer(reference, stream.url) as writer,
        ):

            def write() -> None:
                for at in range(5):
                    writer.stream.append(b"%d" % at, content_type)
                writer.stream.close()

            # After catching up, and before the request for events.
            before.actions[2] = write
            tailed = client.stream(path).tail
            found = payload(list(tailed()), content_type)
        assert found == (list(range(5)) if content_type == JSON else b"01234")

    def test_messages_of_several_appends_before_one_control_event(
        self, kind: str, reference: ReferenceProcess, stream: Any
    ) -> None:
        """Each still has where to resume after it."""
        stream.create(JSON)
        path = stream.url.partition("/v1/stream/")[2]
        before = Before()
        with (
            connected(kind, reference.url, params={"n": before}) as client,
            Writer(reference, stream.url) as writer,
        ):

            def write() -> None:
                writer.stream.append_json(0, 1)
                writer.stream.append_json([2], 3)
                writer.stream.append_json(4, close=True)

            before.actions[2] = write
            items = list(client.stream(path).tail_json())
        values = [0, 1, [2], 3, 4]
        assert [item.value for item in items] == values
        for at, item in enumerate(items, 1):
            assert [found.value for found in stream.tail_json(item.next_offset)] == values[at:]

    def test_each_json_message_has_the_offset_to_resume_after_it(self, stream: Any) -> None:
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

    def test_it_resumes_at_an_offset(self, stream: Any) -> None:
        stream.create(TEXT)
        first = stream.append(b"one", TEXT)
        stream.append(b"two", TEXT, close=True)
        assert payload(stream.tail(first.next_offset), TEXT) == b"two"

    @pytest.mark.slow
    def test_from_now_on(self, kind: str, reference: ReferenceProcess, stream: Any) -> None:
        stream.create(TEXT, body=b"before")
        path = stream.url.partition("/v1/stream/")[2]
        before = Before()
        with (
            connected(kind, reference.url, params={"n": before}) as client,
            Writer(reference, stream.url) as writer,
        ):
            before.actions[2] = lambda: writer.begin([b"after"], TEXT)
            assert payload(client.stream(path).tail("now"), TEXT) == b"after"

    @pytest.mark.slow
    def test_binary_of_any_bytes(self, kind: str, reference: ReferenceProcess, stream: Any) -> None:
        stream.create("image/png")
        messages = [bytes(range(256)), b"\r\n\r\n", b"\x00", b"data: x\n\n" * 5000]
        with Writer(reference, stream.url) as writer:
            writer.begin(messages, "image/png")
            assert payload(stream.tail(), BINARY) == b"".join(messages)

    @pytest.mark.slow
    def test_text_is_split_between_characters(
        self, kind: str, reference: ReferenceProcess, stream: Any
    ) -> None:
        """Over SSE, wherever appends to a stream of bytes cut it."""
        stream.create(BINARY)
        data = "aé🌊z".encode()
        with Writer(reference, stream.url) as writer:
            writer.begin([data[at : at + 1] for at in range(len(data))], BINARY)
            texts = [chunk.text for chunk in stream.tail_text()]
        assert "".join(texts) == "aé🌊z"

    @pytest.mark.slow
    def test_text_of_several_lines(self, reference: ReferenceProcess, stream: Any) -> None:
        stream.create(TEXT)
        with Writer(reference, stream.url) as writer:
            # No line begins with a space: this server sends `data:` without one before it.
            writer.begin([b"a\nb", b"\n\n", b"c: d \n", b"data: e"], TEXT)
            assert "".join(chunk.text for chunk in stream.tail_text()) == "a\nb\n\nc: d \ndata: e"

    @pytest.mark.slow
    def test_a_long_response_arrives_complete(self, stream: Any) -> None:
        """Compressed, if the driver allows it."""
        stream.create(TEXT)
        for _ in range(3):
            stream.append(b"abcdefgh" * 100_000, TEXT)
        stream.close()
        assert payload(stream.read(), TEXT) == b"abcdefgh" * 300_000
        assert payload(stream.tail(), TEXT) == b"abcdefgh" * 300_000

    def test_a_stream_that_is_deleted(self, stream: Any) -> None:
        stream.create(TEXT, body=b"x")
        tail = stream.tail()
        assert next(tail).data == b"x"
        stream.delete()
        with pytest.raises(NotFound):
            next(tail)

    def test_an_invalid_offset(self, stream: Any) -> None:
        stream.create(TEXT)
        for operation in (stream.read, stream.tail):
            with pytest.raises(Refused) as caught:
                next(operation("no offset"))
            assert (caught.value.status, caught.value.detail) == (400, "Invalid offset format")

    def test_messages_of_a_stream_that_is_not_json(self, stream: Any) -> None:
        stream.create(TEXT, body=b"no JSON")
        for operation in (stream.read_json, stream.tail_json):
            with pytest.raises(AnswerInvalid):
                next(operation())

    @pytest.mark.slow
    def test_it_continues_after_a_crash(self, kind: str, tmp_path: Path) -> None:
        """SIGKILL and a restart between two messages: no gap and no repeat."""
        install()
        with (
            ReferenceProcess(tmp_path, "--data-dir", str(tmp_path / "data")) as server,
            connected(kind, server.url, retry=PATIENT) as client,
            Client(server.url, retry=PATIENT) as writer,
        ):
            stream = client.stream("s")
            stream.create(TEXT, body=b"one")
            tail = stream.tail()
            assert next(tail).data == b"one"
            for data in (b"two", b"three"):
                server.restart()
                writer.stream("s").append(data, TEXT)
                assert next(tail).data == data
            writer.stream("s").close()
            assert next(tail).closed
            tail.close()
