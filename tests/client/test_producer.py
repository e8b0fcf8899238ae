"""Producers of both clients against a real server. test_producing proves their rules."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tailrace.client import (
    AsyncClient,
    Client,
    NotFound,
    ProducerClaim,
    ProducerFenced,
    ProducerGap,
    ProducerReused,
    Retry,
    StreamClosed,
    TailraceError,
    Unreachable,
)
from tests.client.conftest import connected
from tests.client.tiers import sync_first
from tests.support.server import ServerProcess
from tests.support.together import wait_until

JSON = "application/json"
BINARY = "application/octet-stream"


@pytest.fixture
def json_stream(stream: Any) -> Any:
    stream.create(JSON)
    return stream


def values(stream: Any) -> list[Any]:
    return [item.value for item in stream.read_json()]


def test_messages_are_stored_in_order(json_stream: Any) -> None:
    with json_stream.producer(batch_count_max=7) as producer:
        for number in range(100):
            producer.append_json({"n": number})
    assert values(json_stream) == [{"n": number} for number in range(100)]


def test_flush_returns_when_all_is_stored(json_stream: Any) -> None:
    producer = json_stream.producer(linger_s=60)
    delivery = producer.append_json("a")
    producer.flush()
    assert delivery.result().next_offset == json_stream.head().next_offset
    assert values(json_stream) == ["a"]
    producer.close()


def test_encoded_messages(json_stream: Any) -> None:
    with json_stream.producer() as producer:
        producer.append(b'{"a":1}')
        producer.append('"é"')
    assert values(json_stream) == [{"a": 1}, "é"]


def test_bytes_of_a_batch_are_joined(stream: Any) -> None:
    stream.create(BINARY)
    with stream.producer(content_type=BINARY) as producer:
        for _ in range(10):
            producer.append(b"ab")
    joined = stream.head().next_offset
    with stream.producer(content_type=BINARY, batch_count_max=1) as producer:
        for _ in range(10):
            producer.append(b"ab")
    assert b"".join(chunk.data for chunk in stream.read()) == b"ab" * 20
    messages = [int(offset.partition("_")[0]) for offset in (joined, stream.head().next_offset)]
    assert messages[0] < 10
    assert messages[1] == messages[0] + 10


def test_close_stream_closes_with_the_last_message(json_stream: Any) -> None:
    producer = json_stream.producer(linger_s=60)
    delivery = producer.append_json("last")
    producer.close_stream()
    assert delivery.result().closed
    assert json_stream.head().closed
    assert values(json_stream) == ["last"]
    with pytest.raises(ValueError, match="closed"):
        producer.append_json("more")
    producer.close()


def test_close_stream_without_a_message(json_stream: Any) -> None:
    with json_stream.producer() as producer:
        producer.close_stream()
    assert json_stream.head().closed


def test_a_closed_producer_rejects_messages(json_stream: Any) -> None:
    producer = json_stream.producer()
    producer.close()
    producer.close()
    with pytest.raises(ValueError, match="closed"):
        producer.append_json(1)


def test_invalid_json_is_rejected_by_append(json_stream: Any) -> None:
    with json_stream.producer() as producer:
        with pytest.raises(ValueError, match="not JSON compliant"):
            producer.append_json(float("nan"))
        with pytest.raises(TypeError):
            producer.append_json(object())
        producer.append_json(1)
    assert values(json_stream) == [1]


def test_encoded_messages_are_checked_too(json_stream: Any) -> None:
    """An invalid one would have its whole batch rejected, and end the producer."""
    with json_stream.producer() as producer:
        producer.append(b"1")
        for invalid in (b"", b"1,2", b"1],[2", b"{", b"NaN", b'"\xff"', b"[" * 9999):
            with pytest.raises(ValueError):
                producer.append(invalid)
        producer.append(b" 2 ")
    assert values(json_stream) == [1, 2]


def test_an_empty_message_is_rejected(stream: Any) -> None:
    stream.create(BINARY)
    with stream.producer(content_type=BINARY) as producer:
        with pytest.raises(ValueError, match="byte"):
            producer.append(b"")
        producer.append(b"x")
    assert stream.read_all().data == b"x"


def test_append_json_needs_a_json_producer(stream: Any) -> None:
    with stream.producer(content_type=BINARY) as producer, pytest.raises(TypeError, match="JSON"):
        producer.append_json(1)


def test_a_reused_id_is_an_error_and_loses_nothing(json_stream: Any) -> None:
    with json_stream.producer("worker") as producer:
        producer.append_json("first run")
    second = json_stream.producer("worker")
    second.append_json("second run")
    with pytest.raises(ProducerReused):
        second.flush()
    assert second.undelivered() == [b'"second run"']
    with pytest.raises(ProducerReused):
        second.close()
    with json_stream.producer("worker", epoch=1) as third:
        third.append_json("third run")
    with json_stream.producer("worker", auto_claim=True) as fourth:
        fourth.append_json("fourth run")
    assert fourth.epoch == 2
    assert values(json_stream) == ["first run", "third run", "fourth run"]


def test_a_fenced_producer_ends_with_an_error(json_stream: Any) -> None:
    errors: list[Exception] = []
    zombie = json_stream.producer("worker", on_error=errors.append)
    zombie.append_json("a")
    zombie.flush()
    with json_stream.producer("worker", auto_claim=True) as other:
        other.append_json("b")
    delivery = zombie.append_json("c")
    with pytest.raises(ProducerFenced) as caught:
        zombie.flush()
    assert caught.value.epoch == 1
    assert delivery.exception() is caught.value
    assert errors == [caught.value]
    with pytest.raises(ProducerFenced):
        zombie.append_json("d")
    with pytest.raises(ProducerFenced):
        zombie.close()
    assert values(json_stream) == ["a", "b"]


def test_claims_by_hand(json_stream: Any) -> None:
    first = ProducerClaim("me", 0, 0)
    assert not json_stream.append_json("a", claim=first).duplicate
    assert json_stream.append_json("a", claim=first).duplicate
    with pytest.raises(ProducerGap) as caught:
        json_stream.append_json("c", claim=ProducerClaim("me", 0, 2))
    assert (caught.value.expected_seq, caught.value.received_seq) == (1, 2)
    assert values(json_stream) == ["a"]


def test_an_error_of_the_block_is_not_hidden(stream: Any) -> None:
    """The stream does not exist, and the block raises another error."""

    def block() -> None:
        with stream.producer() as producer:
            producer.append_json(1)
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        block()
    assert "could not deliver" in caught.value.__notes__[0]


def test_leaving_the_block_raises_the_error(stream: Any) -> None:
    with pytest.raises(NotFound), stream.producer() as producer:
        producer.append_json(1)


def test_a_closed_stream_ends_the_producer(json_stream: Any) -> None:
    producer = json_stream.producer()
    producer.append_json(1)
    producer.flush()
    json_stream.close()
    producer.append_json(2)
    with pytest.raises(StreamClosed):
        producer.close()
    assert values(json_stream) == [1]


def test_a_full_queue_makes_append_wait(json_stream: Any) -> None:
    """More messages pass than the queue holds, and it never holds more."""
    producer = json_stream.producer(queue_count_max=10, batch_count_max=4)
    for number in range(500):
        producer.append_json(number)
        assert len(producer.undelivered()) <= 10
    producer.close()
    assert values(json_stream) == list(range(500))


def test_a_message_larger_than_the_queue_goes_alone(json_stream: Any) -> None:
    with json_stream.producer(queue_bytes_max=100, batch_bytes_max=50) as producer:
        producer.append_json(1)
        producer.append_json("x" * 1000)
        producer.append_json(2)
    assert values(json_stream) == [1, "x" * 1000, 2]


def test_options_are_checked(stream: Any) -> None:
    for name, value in (
        *(("epoch", -1), ("epoch", 2**53), ("producer_id", "")),
        *(("in_flight_max", 0), ("linger_s", -1)),
    ):
        with pytest.raises(ValueError, match=name):
            stream.producer(**{name: value})


@sync_first
def test_a_producer_continues_after_the_server_was_killed(kind: str, tmp_path: Path) -> None:
    """Requests are in flight when it is killed; after its restart each message is stored once."""
    retry = Retry(attempts_max=100, first_s=0.01, longest_s=0.1)
    with (
        ServerProcess(tmp_path) as server,
        connected(kind, f"http://127.0.0.1:{server.port}", retry=retry) as client,
    ):
        stream = client.stream("killed")
        stream.create(JSON)
        with stream.producer(batch_count_max=10, queue_count_max=100) as producer:
            for number in range(3000):
                if number in (1000, 2000):
                    server.kill()
                    threading.Timer(0.3, server.start).start()
                producer.append_json(number)
        assert values(stream) == list(range(3000))


def test_a_server_that_stays_unreachable(kind: str, tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        url = f"http://127.0.0.1:{server.port}"
        with connected(kind, url, retry=Retry(attempts_max=3, first_s=0.01)) as client:
            stream = client.stream("away")
            stream.create(JSON)
            producer = stream.producer()
            producer.append_json("stored")
            producer.flush()
            server.kill()
            lost = producer.append_json("lost")
            with pytest.raises(Unreachable):
                producer.flush()
            assert isinstance(lost.exception(), Unreachable)
            assert producer.undelivered() == [b'"lost"']
            with pytest.raises(Unreachable):
                producer.close()


def test_a_partial_batch_is_sent_after_linger_s(server: ServerProcess) -> None:
    with Client(f"http://127.0.0.1:{server.port}") as client:
        stream = client.stream("client/lingers")
        stream.create(JSON)
        with stream.producer(linger_s=0.01) as producer:
            assert producer.append_json("a").result(timeout=20).closed is False


def test_a_partial_batch_is_sent_after_linger_s_on_a_loop(server: ServerProcess) -> None:
    async def main() -> None:
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as client:
            stream = client.stream("client/lingers-too")
            await stream.create(JSON)
            async with stream.producer(linger_s=0.01) as producer, asyncio.timeout(20):
                assert (await (await producer.append_json("a"))).closed is False

    asyncio.run(main())


def test_many_threads_share_a_producer(server: ServerProcess) -> None:
    with Client(f"http://127.0.0.1:{server.port}") as client:
        stream = client.stream("client/shared-producer")
        stream.create(JSON)
        with stream.producer(batch_count_max=50, queue_count_max=200) as producer:

            def write(who: int) -> None:
                for number in range(500):
                    producer.append_json([who, number])

            threads = [threading.Thread(target=write, args=(who,)) for who in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        stored = [item.value for item in stream.read_json()]
    assert len(stored) == 8 * 500
    for who in range(8):
        assert [number for writer, number in stored if writer == who] == list(range(500))


def test_a_future_is_shared_and_cannot_be_cancelled(server: ServerProcess) -> None:
    with Client(f"http://127.0.0.1:{server.port}") as client:
        stream = client.stream("client/uncancellable")
        stream.create(JSON)
        with stream.producer(linger_s=60) as producer:
            future = producer.append_json(1)
            assert isinstance(future, Future)
            assert not future.cancel()
            assert producer.append_json(2) is future


def test_cancelling_a_wait_for_a_delivery_cancels_nothing_else(server: ServerProcess) -> None:
    async def main() -> None:
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as client:
            stream = client.stream("client/shielded")
            await stream.create(JSON)
            async with stream.producer(linger_s=60) as producer:
                delivery = await producer.append_json(1)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(delivery, 0.01)
                await producer.flush()
                assert (await delivery).next_offset is not None

    asyncio.run(main())


def test_a_cancelled_close_leaves_no_task(server: ServerProcess) -> None:
    """The server never responds: leaving the block is cancelled too, and no task is left."""

    handlers: list[asyncio.Task[None] | None] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        nowhere = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = nowhere.sockets[0].getsockname()[1]
        before = asyncio.all_tasks()
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), client.stream("x").producer() as producer:
                    await producer.append_json(1)
            names = {task.get_name() for task in asyncio.all_tasks() - before}
            assert "tailrace-producer" not in names
        nowhere.close()
        await nowhere.wait_closed()
        # A transport that outlives its loop raises a ResourceWarning in a later test.
        await asyncio.gather(*filter(None, handlers))

    asyncio.run(main())


def test_messages_of_an_unclosed_producer_are_sent_at_exit(server: ServerProcess) -> None:
    url = f"http://127.0.0.1:{server.port}"
    program = f"""
from tailrace import Client
stream = Client({url!r}).stream("client/forgotten")
stream.create("application/json")
stream.producer(linger_s=60).append_json("remembered")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with Client(url) as client:
        assert values(client.stream("client/forgotten")) == ["remembered"]


def test_messages_that_cannot_be_sent_at_exit_are_logged(server: ServerProcess) -> None:
    url = f"http://127.0.0.1:{server.port}"
    program = f"""
from tailrace import Client
Client({url!r}).stream("client/nowhere").producer(linger_s=60).append_json(1)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    )
    assert "could not deliver everything" in done.stderr


def test_messages_left_at_the_end_of_a_loop_are_logged(
    server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        client = AsyncClient(f"http://127.0.0.1:{server.port}")
        producer = client.stream("client/abandoned").producer(linger_s=60)
        await producer.append_json(1)
        await asyncio.sleep(0)
        await client.close()

    asyncio.run(main())
    gc.collect()
    assert "1 messages of a producer were not stored" in caplog.text


def test_a_failure_without_a_caller_is_logged(
    server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(f"http://127.0.0.1:{server.port}") as client:
        producer = client.stream("client/nowhere").producer(linger_s=0)
        assert producer.append_json(1).exception(timeout=20) is not None
        del producer
        gc.collect()
    assert "1 messages of a producer were not stored" in caplog.text


def test_a_failing_callback_does_not_block_close(server: ServerProcess) -> None:
    async def main() -> None:
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as client:
            producer = client.stream("client/nowhere").producer(on_error=_fail)
            await producer.append_json(1)
            with pytest.raises(NotFound):
                await producer.close()

    asyncio.run(main())


def _fail(error: Exception) -> None:
    raise TailraceError("of the callback")


@pytest.mark.parametrize("operation", ["close", "flush"])
def test_a_callback_must_not_wait_for_its_producer(server: ServerProcess, operation: str) -> None:
    """It runs in the producer's thread: neither that nor another thread hangs."""
    told: list[BaseException] = []

    def on_error(_: Exception) -> None:
        try:
            getattr(producer, operation)()
        except RuntimeError as error:
            told.append(error)

    with Client(f"http://127.0.0.1:{server.port}") as client:
        producer = client.stream("client/nowhere").producer(linger_s=0, on_error=on_error)
        producer.append_json(1)
        with pytest.raises(NotFound):
            producer.flush()
        wait_until(lambda: bool(told))
        with pytest.raises(NotFound):
            producer.close()


def test_a_callback_of_a_future_may_append(server: ServerProcess) -> None:
    with Client(f"http://127.0.0.1:{server.port}") as client:
        stream = client.stream("client/callback")
        stream.create(JSON)
        with stream.producer(linger_s=0) as producer:
            again: list[Any] = []
            first = producer.append_json(1)
            first.add_done_callback(lambda _: again.append(producer.append_json(2)))
            wait_until(lambda: bool(again))
        assert values(stream) == [1, 2]


def test_a_forked_child_sends_nothing_at_exit(server: ServerProcess) -> None:
    url = f"http://127.0.0.1:{server.port}"
    program = f"""
import os
from tailrace import Client
stream = Client({url!r}).stream("client/forked")
stream.create("application/json")
stream.producer(linger_s=1).append_json("once")
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with Client(url) as client:
        assert values(client.stream("client/forked")) == ["once"]


def test_a_cancelled_append_adds_nothing(server: ServerProcess) -> None:
    async def main() -> None:
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as client:
            stream = client.stream("client/cancelled-append")
            await stream.create(JSON)
            async with stream.producer(linger_s=60, batch_count_max=1) as producer:
                for number in range(50):
                    task = asyncio.create_task(producer.append_json(number))
                    await asyncio.sleep(0)
                    if task.cancel():
                        with pytest.raises(asyncio.CancelledError):
                            await task
                        await producer.append_json(number)
            found = [item.value async for item in stream.read_json()]
            assert found == list(range(50))

    asyncio.run(main())


def test_tails_do_not_block_appends(server: ServerProcess) -> None:
    """More tails than a connection pool would hold."""

    async def follow(stream: Any) -> None:
        async for _ in stream.tail():
            pass

    async def main() -> None:
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as client:
            stream = client.stream("client/many-tails")
            await stream.create(JSON)
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for _ in range(120):
                    group.create_task(follow(stream))
                await stream.append_json(1)
                await stream.close()

    asyncio.run(main())
