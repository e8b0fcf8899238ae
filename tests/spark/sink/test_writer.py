"""
The sink without Spark: its writers are called as a task calls them, against a real server.

Whatever becomes of an attempt, the stream must end up with each row once, in order.
"""

import itertools
import json
import multiprocessing
import pickle
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tailrace.client import Client, NotFound, ProducerClaim, StreamName
from tailrace.spark.options import OptionInvalid, write_options
from tailrace.spark.sink import parallel_sender as sender_module
from tailrace.spark.sink.append_requests import Appender, AppendRequest
from tailrace.spark.sink.errors import (
    BucketMissing,
    ColumnsInvalid,
    OrderUnknown,
    RequestTooLarge,
    SinkClosed,
    SinkFenced,
    SinkGap,
    StreamMissing,
    StreamVanished,
    TargetInvalid,
    TypeConflict,
    ValueInvalid,
)
from tailrace.spark.sink.parallel_sender import ParallelSender
from tailrace.spark.sink.writer import TailraceStreamWriter, TailraceWriter, TaskSummary
from tests.support.server import ServerProcess

_names = itertools.count()

TYPES: dict[str, DataType] = {
    "value": StringType(),
    "stream": StringType(),
    "bucket": StringType(),
    "content_type": StringType(),
    "at": LongType(),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that do not harm it."""
    with ServerProcess(tmp_path_factory.mktemp("sink"), "--body-bytes-max", "3000000") as process:
        yield process


@pytest.fixture
def client(shared: ServerProcess) -> Iterator[Client]:
    with Client(shared.url) as client:
        yield client


@pytest.fixture
def name() -> str:
    """Of a stream, or a bucket, that no other test uses."""
    return f"name{next(_names)}"


def schema(columns: Iterable[str], **types: DataType) -> StructType:
    return StructType([StructField(column, {**TYPES, **types}[column]) for column in columns])


def batches(rows: list[dict[str, Any]], size: int = 100) -> Iterator[Any]:
    return (pa.RecordBatch.from_pylist(rows[at : at + size]) for at in range(0, len(rows), size))


def writer(url: str, columns: Iterable[str], **given: str) -> TailraceWriter:
    return TailraceWriter(write_options({"url": url, **given}), schema(columns))


def write(url: str, rows: list[dict[str, Any]], **given: str) -> TaskSummary:
    return writer(url, rows[0], **given).write(batches(rows))


def values_of(client: Client, path: str) -> list[Any]:
    return [item.value for item in client.stream(path).read_json()]


def numbers(count: int) -> list[dict[str, Any]]:
    return [{"value": json.dumps({"n": n, "pad": "x" * (n % 50)}), "at": n} for n in range(count)]


def loaded(rows: list[dict[str, Any]]) -> list[Any]:
    return [json.loads(row["value"]) for row in rows]


# -- once, whatever becomes of an attempt -------------------------------------------------------


def test_rows_are_messages_in_the_order_in_which_they_come(client: Client, name: str) -> None:
    client.stream(name).create("application/json")
    rows = numbers(1000)
    written = write(client.url, rows, stream=name, stableInput="true", maxRequestBytes="2000")
    assert values_of(client, name) == loaded(rows)
    assert written.requests > 20 and not written.duplicates and written.streams == 1


def test_a_batch_that_is_written_twice_is_stored_once(client: Client, name: str) -> None:
    rows = numbers(500)
    given = {"stream": name, "createStreams": "true", "maxRequestBytes": "3000"}
    one = writer(client.url, rows[0], stableInput="true", sinkId="job", batchId="4", **given)
    first, again = one.write(batches(rows)), pickle.loads(pickle.dumps(one)).write(batches(rows, 7))
    assert values_of(client, name) == loaded(rows)
    assert again.duplicates == again.requests == first.requests > 1
    # Another batch, and a write without a name, are stored again.
    write(client.url, rows, stableInput="true", sinkId="job", batchId="5", **given)
    write(client.url, rows, stableInput="true", **given)
    assert values_of(client, name) == loaded(rows) * 3


def test_the_next_attempt_completes_an_interrupted_one(client: Client, name: str) -> None:
    client.stream(name).create("application/json")
    rows = numbers(600)
    given = {"stream": name, "stableInput": "true", "maxRequestBytes": "2000"}
    task = writer(client.url, rows[0], **given)

    def interrupted() -> Iterator[Any]:
        yield from itertools.islice(batches(rows), 3)
        # Some of it is there: the task is ended neither before nor after all.
        for _ in client.stream(name).tail_json():
            raise Stop

    with pytest.raises(Stop):
        task.write(interrupted())
    assert 0 < len(values_of(client, name)) < 600
    task.write(batches(rows, 31))
    assert values_of(client, name) == loaded(rows)


class Stop(Exception):
    pass


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Requests fail, as if the task was ended, after some."""
    left = itertools.count(count, -1)
    send = Appender.send

    def counted(self: Appender, append: AppendRequest) -> bool:
        if next(left) <= 0:
            raise Stop
        return send(self, append)

    monkeypatch.setattr(Appender, "send", counted)


@pytest.mark.parametrize("seed", range(5))
def test_attempts_with_other_orders_of_arrival_agree(
    client: Client, name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Goal: the trap of a shuffle: an attempt is given up half-way, the next gets the same rows in
    another order, and none is lost or doubled. Method: several streams, ties in `orderBy`, and so
    little memory that most rows go through files.
    """
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = [
        {"value": json.dumps([n, "y" * rng.randrange(60)]), "at": n // 3, "stream": f"s{n % 4}"}
        for n in range(800)
    ]
    given = {"bucket": name, "createStreams": "true", "createBuckets": "true", "orderBy": "at"}
    task = writer(client.url, rows[0], maxRequestBytes="900", bufferBytes="5000", **given)
    with monkeypatch.context() as patched:
        stop_after(patched, rng.randrange(1, 30))
        rng.shuffle(rows)
        with pytest.raises(Stop):
            task.write(batches(rows, 17))
    for _ in range(2):
        rng.shuffle(rows)
        task.write(batches(rows, 40))
    for at in range(4):
        stored = [item.value for item in client.bucket(name).stream(f"s{at}").read_json()]
        mine = [row for row in rows if row["stream"] == f"s{at}"]
        mine.sort(key=lambda row: (row["at"], row["value"].encode()))
        assert stored == loaded(mine)


def test_two_attempts_at_once_store_each_row_once(client: Client, name: str) -> None:
    """Goal: speculation: both attempts write all of it at the same time."""
    rows = numbers(2000)
    given = {"stream": name, "createStreams": "true", "orderBy": "at", "maxRequestBytes": "2000"}
    task = writer(client.url, rows[0], **given)
    done: list[TaskSummary] = []

    def attempt(seed: int) -> None:
        mine = random.Random(seed).sample(rows, len(rows))
        done.append(task.write(batches(mine)))

    threads = [threading.Thread(target=attempt, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values_of(client, name) == loaded(rows)
    assert sum(each.duplicates for each in done) == done[0].requests == done[1].requests


def test_without_an_order_the_first_attempt_is_stored_as_a_whole(client: Client, name: str) -> None:
    rows = numbers(300)
    task = writer(client.url, rows[0], stream=name, createStreams="true")
    task.write(batches(rows))
    again = task.write(batches(rows[::-1]))
    assert values_of(client, name) == loaded(rows)
    assert (again.requests, again.duplicates) == (1, 1)


def test_setting_an_order_after_a_failed_attempt_completes_the_batch(
    client: Client, name: str
) -> None:
    """
    Goal: the way out of `OrderUnknown` doubles nothing. Method: two streams fit into a request
    each, a third does not; what was stored without an order is written again with one.
    """
    rows = [
        {"value": json.dumps([n, "z" * 2000]), "stream": "abccc"[n % 5], "at": n}
        for n in range(2000)
    ]
    given = {"bucket": name, "createStreams": "true", "createBuckets": "true"}
    named = {"sinkId": "job", "batchId": "1", "maxRequestBytes": "1500000"}
    with pytest.raises(OrderUnknown, match="orderBy"):
        write(client.url, rows, **given, **named)
    write(client.url, rows[::-1], orderBy="at", **given, **named)
    for stream in "abc":
        stored = [item.value[0] for item in client.bucket(name).stream(stream).read_json()]
        assert stored == [row["at"] for row in rows if row["stream"] == stream]


def write_half_and_hang(task: TailraceWriter, rows: list[dict[str, Any]]) -> None:
    """Run in a process that will be killed."""

    def endless() -> Iterator[Any]:
        yield from itertools.islice(batches(rows), 3)
        threading.Event().wait()

    task.write(endless())


def test_a_worker_that_is_killed_leaves_what_the_next_one_completes(
    client: Client, name: str
) -> None:
    client.stream(name).create("application/json")
    rows = numbers(600)
    given = {"stream": name, "stableInput": "true", "maxRequestBytes": "2000"}
    task = writer(client.url, rows[0], **given)
    worker = multiprocessing.get_context("spawn").Process(
        target=write_half_and_hang, args=(task, rows), daemon=True
    )
    worker.start()
    try:
        with closing(client.stream(name).tail_json()) as items:
            next(items)
    finally:
        worker.kill()
        worker.join()
    worker.close()
    assert 0 < len(values_of(client, name)) < 600
    assert task.write(batches(rows, 7)).duplicates
    assert values_of(client, name) == loaded(rows)


def test_a_restarted_server_has_each_row_once(tmp_path: Path, name: str) -> None:
    rows = numbers(600)
    with ServerProcess(tmp_path) as server, Client(server.url) as client:
        given = {"stream": name, "createStreams": "true", "stableInput": "true"}

        def deadly() -> Iterator[Any]:
            for at, batch in enumerate(batches(rows, 50)):
                if at in (3, 8):
                    server.restart()
                yield batch

        writer(server.url, rows[0], maxRequestBytes="1000", **given).write(deadly())
        assert values_of(client, name) == loaded(rows)


# -- where rows go ------------------------------------------------------------------------------


@pytest.mark.slow
def test_thousands_of_streams_by_column(client: Client, name: str) -> None:
    rng = random.Random(3)
    rows = [
        {"value": json.dumps(n), "stream": f"s-{rng.randrange(1100)}", "bucket": f"{name}-{n % 2}"}
        for n in range(7000)
    ]
    given = {"createStreams": "true", "createBuckets": "true", "bufferBytes": "50000"}
    written = write(client.url, rows, **given)
    expected: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        expected.setdefault((row["bucket"], row["stream"]), []).append(json.loads(row["value"]))
    assert written.streams == written.requests == len(expected) > 2000
    for half in (f"{name}-0", f"{name}-1"):
        listed = {stream.stream_id for stream in client.bucket(half).streams()}
        assert listed == {stream for bucket, stream in expected if bucket == half}
    for bucket, stream in rng.sample(sorted(expected), 60):
        stored = [item.value for item in client.bucket(bucket).stream(stream).read_json()]
        assert stored == expected[bucket, stream]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"stream": None}, "row 2 of partition 0: the column stream is null"),
        ({"stream": ""}, "the column stream is empty"),
        ({"stream": "/s"}, "begins with a slash"),
        ({"stream": "http://127.0.0.1:1/x"}, "whole URL"),
        ({"bucket": None}, "the column bucket is null: fill it, or drop the column"),
    ],
)
def test_a_row_without_a_valid_stream(
    client: Client, row: dict[str, str | None], words: str
) -> None:
    rows = [{"value": "1", "stream": "s", "bucket": "buck"} for _ in range(3)]
    rows[2].update(row)  # type: ignore[arg-type]
    with pytest.raises(TargetInvalid, match=words):
        write(client.url, rows, createStreams="true", createBuckets="true")
    with pytest.raises(NotFound):
        client.bucket("buck").info()


def test_streams_are_created_with_content_type_and_ttl(client: Client, name: str) -> None:
    rows = [{"value": "hi", "stream": "s", "content_type": "text/plain"}]
    with pytest.raises(StreamMissing, match="createStreams=true"):
        write(client.url, rows, bucket=name)
    with pytest.raises(BucketMissing, match="createBuckets=true"):
        write(client.url, rows, bucket=name, createStreams="true")
    write(client.url, rows, bucket=name, createStreams="true", createBuckets="true", ttl="500")
    head = client.bucket(name).stream("s").head()
    assert (head.content_type, head.ttl_s) == ("text/plain", 500)
    # It is there now, and lives otherwise: that is no error.
    write(client.url, rows, bucket=name, createStreams="true", ttl="9")
    assert b"".join(chunk.data for chunk in client.bucket(name).stream("s").read()) == b"hihi"


def test_tasks_that_create_the_same_at_once(client: Client, name: str) -> None:
    rows = [{"value": json.dumps(n), "stream": f"s{n}"} for n in range(20)]
    given = {"bucket": name, "createStreams": "true", "createBuckets": "true"}
    failed: list[Exception] = []

    def task() -> None:
        try:
            write(client.url, rows, **given)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=task) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    stored = [item.value for item in client.bucket(name).stream("s7").read_json()]
    assert stored == [7] * 4


# -- what messages are --------------------------------------------------------------------------


def test_bytes_keep_their_boundaries(client: Client, name: str) -> None:
    rng = random.Random(1)
    values = [rng.randbytes(rng.randrange(1, 30)) for _ in range(60)]
    table = pa.table({"value": pa.array(values, pa.binary()), "at": range(60)})
    given = {"bucket": name, "stream": "s", "contentType": "application/octet-stream"}
    options = write_options(
        {"url": client.url, "createStreams": "true", "createBuckets": "true", **given}
        | {"orderBy": "at"}
    )
    task = TailraceWriter(options, schema(["value", "at"], value=BinaryType()))
    for _ in range(2):
        task.write(iter(table.take(rng.sample(range(60), 60)).to_batches()))
    found = client.bucket(name).stream("s").bootstrap()
    assert found.messages == values


def test_invalid_json_stops_the_write_before_its_request(client: Client, name: str) -> None:
    """`1,2` would be two messages in an array, and no server could tell."""
    client.stream(name).create("application/json")
    rows = numbers(100)
    rows[70]["value"] = "1,2"
    with pytest.raises(ValueInvalid) as caught:
        write(client.url, rows, stream=name)
    assert (caught.value.stream, caught.value.row) == (name, 70)
    assert values_of(client, name) == []
    with pytest.raises(ValueInvalid, match=r"row 3 .*the value is null"):
        write(client.url, [*rows[:3], {"value": None, "at": 1}], stream=name)
    assert values_of(client, name) == []


# -- what a server refuses ----------------------------------------------------------------------


def test_an_older_batch_is_fenced(client: Client, name: str) -> None:
    rows = numbers(3)
    given = {"stream": name, "createStreams": "true", "sinkId": "job"}
    write(client.url, rows, batchId="5", **given)
    with pytest.raises(SinkFenced, match=r"rolled back.*same sinkId") as caught:
        write(client.url, rows, batchId="4", **given)
    assert (caught.value.producer_id, caught.value.epoch, caught.value.held) == ("job/0", 4, 5)
    assert values_of(client, name) == loaded(rows)


def test_a_closed_stream_refuses_new_requests_and_acknowledges_old_ones(
    client: Client, name: str
) -> None:
    rows = numbers(3)
    task = writer(client.url, rows[0], stream=name, createStreams="true")
    task.write(batches(rows))
    client.stream(name).close()
    assert task.write(batches(rows)).duplicates == 1
    with pytest.raises(SinkClosed, match="accepts no more"):
        write(client.url, rows, stream=name)


def test_a_stream_of_another_type(client: Client, name: str) -> None:
    client.stream(name).create("text/plain")
    with pytest.raises(TypeConflict, match=r"application/json.*contentType"):
        write(client.url, numbers(3), stream=name)


def test_a_request_that_the_server_finds_too_large(client: Client, name: str) -> None:
    rows = [{"value": json.dumps("x" * 4_000_000)}]
    with pytest.raises(RequestTooLarge, match="raise the server's limit"):
        write(client.url, rows, stream=name, createStreams="true")


@pytest.mark.parametrize("created_anew", [False, True])
def test_a_stream_that_is_deleted_within_a_batch(
    client: Client, name: str, created_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going on would lose what was stored of the batch: it fails, and again writes all of it."""
    rows = numbers(200)
    given = {"stream": name, "createStreams": "true", "maxRequestBytes": "1000"}
    task = writer(client.url, rows[0], stableInput="true", **given)
    send = Appender.send

    def deleting(self: Appender, append: AppendRequest) -> bool:
        if append.claim.seq == 3:
            client.stream(name).delete()
            if created_anew:
                client.stream(name).create("application/json")
        return send(self, append)

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "send", deleting)
        with pytest.raises(SinkGap if created_anew else StreamVanished, match=r"[Rr]unning"):
            task.write(batches(rows))
    task.write(batches(rows))
    assert values_of(client, name) == loaded(rows)


# -- options, columns, tasks --------------------------------------------------------------------

URL = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("columns", "types", "given", "words"),
    [
        (["stream"], {}, {}, "no column value"),
        (["value"], {"value": LongType()}, {"stream": "s"}, "value is long"),
        (["value"], {}, {}, "neither a column stream nor an option"),
        (["value", "stream"], {"stream": BinaryType()}, {}, "stream is binary"),
        (["value", "bucket"], {}, {"stream": "s"}, "column bucket and no column stream"),
        (["value"], {}, {"stream": "s", "orderBy": "at"}, "no column at"),
        (
            ["value", "at"],
            {"at": ArrayType(LongType())},
            {"stream": "s", "orderBy": "value, at"},
            "at is array",
        ),
    ],
)
def test_columns_are_checked_before_anything_runs(
    columns: list[str], types: dict[str, DataType], given: dict[str, str], words: str
) -> None:
    options = write_options({"url": URL, **given})
    for kind in (TailraceWriter, TailraceStreamWriter):
        with pytest.raises(ColumnsInvalid, match=words):
            kind(options, schema(columns, **types))


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (TailraceWriter, {"sinkId": "a"}, "needs a batchId"),
        (TailraceWriter, {"sinkId": "ä", "batchId": "1"}, "printable ASCII"),
        (TailraceWriter, {"sinkId": "a" * 502, "batchId": "1"}, "501 characters"),
        (TailraceWriter, {"sinkId": "a", "batchId": str(2**53)}, "at most"),
        (TailraceStreamWriter, {"sinkId": "a", "batchId": "1"}, "streaming query"),
        (TailraceStreamWriter, {"sinkId": "a\n"}, "printable ASCII"),
    ],
)
def test_ids_are_checked(
    kind: Callable[[Any, StructType], Any], given: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionInvalid, match=words):
        kind(write_options({"url": URL, "stream": "s", **given}), schema(["value"]))


class Task:
    """A fake task context."""

    def __init__(self, partition: int, **properties: str) -> None:
        self.partition = partition
        self.properties = {name.replace("_", "."): value for name, value in properties.items()}

    def partitionId(self) -> int:
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


def test_the_batch_and_query_ids_come_from_the_task(
    client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_as(partition: int, batch: int, **given: str) -> TaskSummary:
        task = Task(
            partition,
            streaming_sql_batchId=str(batch),
            sql_streaming_queryId="query",
            spark_sql_adaptive_streaming_stateless_enabled="false",
        )
        monkeypatch.setattr(TaskContext, "get", lambda: task)
        # There is no worker here whose rows could be cut off.
        monkeypatch.setattr("tailrace.spark.sink.writer.complete_input", iter)
        options = write_options({"url": client.url, "stream": name, **given})
        rows = [{"value": json.dumps([partition, batch])}]
        return TailraceStreamWriter(options, schema(["value"])).write(batches(rows))

    client.stream(name).create("application/json")
    # Each of them for the first time, and partition 1 has nothing to write in batch 0.
    for partition, batch in ((0, 0), (0, 1), (1, 1), (0, 2)):
        assert not write_as(partition, batch).duplicates
    assert write_as(1, 1).duplicates == write_as(0, 2).duplicates == 1
    with pytest.raises(SinkFenced, match="'query/0'"):
        write_as(0, 1)
    assert not write_as(0, 1, sinkId="other").duplicates
    assert values_of(client, name) == [[0, 0], [0, 1], [1, 1], [0, 2], [0, 1]]


def test_abort_logs_how_much_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    done = TaskSummary(partition=0, streams=1, requests=3, duplicates=0)
    options = {"url": URL, "stream": "s"}
    streaming = TailraceStreamWriter(write_options(options), schema(["value"]))
    streaming.abort([done, None], 7)
    named = {**options, "sinkId": "job", "batchId": "4"}
    TailraceWriter(write_options(named), schema(["value"])).abort([done, None])
    TailraceWriter(write_options(options), schema(["value"])).abort([None])
    first, second, third = caplog.messages
    assert "batch 7 failed. 1 of 2 tasks" in first and "3 requests are stored" in first
    assert "batch 4 of 'job'" in second and "stores nothing twice" in second
    assert "sinkId and a batchId" in third


# -- sender --------------------------------------------------------------------------------------


def test_requests_of_a_stream_are_sent_in_order_by_several_threads() -> None:
    """
    Goal: streams overtake each other, a stream's requests never. Method: the first stream's
    request waits until another stream's is sent, which only another lane can do.
    """
    sent: list[tuple[str, int]] = []
    overtaken = threading.Event()
    lock = threading.Lock()

    def send(append: AppendRequest) -> bool:
        if append.name.stream == "s0" and append.claim.seq == 0:
            assert overtaken.wait(30)
        with lock:
            sent.append((append.name.stream, append.claim.seq))
        if append.name.stream == "s1":
            overtaken.set()
        return False

    sender = ParallelSender(send)
    for append in _appends(streams=9, count=5):
        sender.put(append)
    sender.finish()
    sender.close()
    assert sender.requests == len(sent) == 45
    for at in range(9):
        assert [seq for name, seq in sent if name == f"s{at}"] == list(range(5))


def test_a_failed_request_stops_the_others_and_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender_module, "PENDING_BYTES_MAX", 20)
    sent: list[AppendRequest] = []

    def send(append: AppendRequest) -> bool:
        sent.append(append)
        if append.claim.seq == 3:
            raise Stop
        return False

    sender = ParallelSender(send, threads_max=1)
    with pytest.raises(Stop):
        deque(map(sender.put, _appends(streams=1, count=1000)))
    with pytest.raises(Stop):
        sender.finish()
    sender.close()
    assert [append.claim.seq for append in sent] == [0, 1, 2, 3]


def _appends(streams: int, count: int) -> Iterator[AppendRequest]:
    for at, seq in itertools.product(range(streams), range(count)):
        claim = ProducerClaim("p", 0, seq)
        yield AppendRequest(StreamName("buck", f"s{at}"), "text/plain", claim, b"12345")
