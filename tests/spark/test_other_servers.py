"""
Source and sink against the reference server of the protocol (npm's `@durable-streams/server`).

It has no buckets and no bounded reads, its offsets count nothing, and a response to a catch-up read
has all there is. What is promised holds there too, or an error says that it cannot be had.
"""

import json
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from tailrace.client import Client, Stream
from tailrace.spark.options import read_options
from tailrace.spark.source.catch_up_read import read_catch_up
from tailrace.spark.source.columns import SourceColumns, default_schema
from tailrace.spark.source.offset_ranges import OffsetRange
from tests.support.reference import ReferenceProcess, install
from tests.support.streams import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JSON = "application/json"
OCTETS = "application/octet-stream"
names = (f"spark/{number}" for number in count())


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceProcess]:
    install()
    home = tmp_path_factory.mktemp("reference")
    with ReferenceProcess(home, "--data-dir", str(home / "data")) as running:
        yield running


@pytest.fixture
def other(reference: ReferenceProcess) -> Iterator[Client]:
    with Client(reference.url) as client:
        yield client


class Writer:
    """Appends 0, 1, 2 … one by one, until it is told to end; keeps the offset after each."""

    def __init__(self, stream: Stream, kind: str, encode: Callable[[int], bytes]) -> None:
        self._stream = stream
        self._kind = kind
        self._encode = encode
        self._ends = threading.Event()
        self.offsets: list[str] = []
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self._ends.is_set():
            offset = self._stream.append(self._encode(len(self.offsets)), self._kind).next_offset
            assert offset is not None
            self.offsets.append(offset)

    def wait_for(self, number: int) -> None:
        wait_until("it has written", lambda: len(self.offsets) >= number, 60)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def numbered(number: int) -> bytes:
    return b'{"n":%d}' % number


@pytest.fixture
def read(spark: "SparkSession", reference: ReferenceProcess) -> "Callable[..., DataFrame]":
    def load(**options: str) -> "DataFrame":
        return spark.read.format("tailrace").options(url=reference.url, **options).load()

    return load


@pytest.mark.slow
def test_json_while_a_writer_appends(read: "Callable[..., DataFrame]", other: Client) -> None:
    """What was read at first is where it ends; a given end is met exactly."""
    name = next(names)
    stream = other.stream(name)
    stream.create(JSON)
    with Writer(stream, JSON, numbered) as writer:
        writer.wait_for(300)
        end = json.dumps({name: writer.offsets[199]})
        for _ in range(3):
            rows = read(stream=name, endingOffsets=end, value="text").collect()
            assert [json.loads(row.value)["n"] for row in rows] == list(range(200))
        before = len(writer.offsets)
        numbers = [json.loads(row.value)["n"] for row in read(stream=name, value="text").collect()]
    assert numbers == list(range(len(numbers)))
    assert before <= len(numbers) <= len(writer.offsets)
    assert rows[0].asDict().keys() == {
        "bucket", "stream", "message", "offset", "next_offset", "time", "content_type", "value",
    }  # fmt: skip
    assert (rows[0].bucket, rows[0].message, rows[0].content_type) == (None, None, JSON)


@pytest.mark.parametrize("kind", [JSON, OCTETS])
def test_an_exact_end_while_a_stream_grows(other: Client, kind: str) -> None:
    """
    Every response goes beyond the end that is wanted, and the next one further still.

    Without Spark, whose second attempts at a task would hide one that gave up.
    """
    name = next(names)
    stream = other.stream(name)
    stream.create(kind)
    options = read_options({"url": other.url, "stream": name})
    builder = SourceColumns(default_schema(options), None)
    with Writer(stream, kind, numbered) as writer:
        writer.wait_for(60)
        offset_range = OffsetRange(name, "-1", writer.offsets[49], is_tailrace=False)
        for _ in range(50):
            batches = list(read_catch_up(options, builder, [offset_range]))
            values = [value for batch in batches for value in batch.column("value").to_pylist()]
            assert b"".join(values) == b"".join(numbered(number) for number in range(50))


@pytest.mark.slow
def test_reading_resumes_after_a_row(read: "Callable[..., DataFrame]", other: Client) -> None:
    name = next(names)
    other.stream(name).create(JSON, body=b"[0,1,2,3,4]")
    rows = read(stream=name).collect()
    values = [item.value for item in other.stream(name).read_json(rows[2].next_offset)]
    assert values == [3, 4]


@pytest.mark.slow
def test_bytes_while_a_writer_appends(read: "Callable[..., DataFrame]", other: Client) -> None:
    name = next(names)
    stream = other.stream(name)
    stream.create(OCTETS)
    with Writer(stream, OCTETS, lambda number: b"%08d" % number) as writer:
        writer.wait_for(300)
        end = json.dumps({name: writer.offsets[199]})
        rows = read(stream=name, endingOffsets=end).collect()
    assert b"".join(bytes(row.value) for row in rows) == b"".join(b"%08d" % n for n in range(200))


class Copy:
    """A query from one stream to another, of the same server, that runs to its end."""

    def __init__(self, spark: "SparkSession", url: str, stream: str, home: Path) -> None:
        self._spark = spark
        self._url = url
        self._stream = stream
        self.target = f"{stream}/copy"
        self.checkpoint = home / "checkpoint"

    def run(self, **options: str) -> None:
        number = F.get_json_object("value", "$.n").cast("long").alias("n")
        rows = self._spark.readStream.format("tailrace").options(
            url=self._url, stream=self._stream, value="text", **options
        )
        query = (
            rows.load()
            .select("value", number)
            .repartition(1)
            .writeStream.format("tailrace")
            .options(url=self._url, stream=self.target, createStreams="true", orderBy="n")
            .options(maxRequestBytes="100", checkpointLocation=str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget_commit(self) -> None:
        """As if the driver had died after the sink's commit and before its own."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*"))
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink()


@pytest.mark.slow
def test_a_query_from_stream_to_stream_exactly_once(
    spark: "SparkSession", reference: ReferenceProcess, other: Client, tmp_path: Path
) -> None:
    """
    Restarts from a checkpoint, also from one that lacks the last commit, while a writer works.

    Method: a batch that runs again must end where it ended, though the stream has grown since.
    """
    name = next(names)
    stream = other.stream(name)
    stream.create(JSON)
    copy = Copy(spark, reference.url, name, tmp_path)
    with Writer(stream, JSON, numbered) as writer:
        for _ in range(2):
            writer.wait_for(len(writer.offsets) + 50)
            copy.run()
            writer.wait_for(len(writer.offsets) + 50)
            copy.forget_commit()
    copy.run()
    values: list[Any] = [item.value["n"] for item in other.stream(copy.target).read_json()]
    assert values == list(range(len(writer.offsets)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingTimestamp": "2026-01-01"}, "startingTimestamp.*needs a Tailrace server"),
        ({"endingTimestamp": "2026-01-01"}, "endingTimestamp.*needs a Tailrace server"),
        ({"bootstrap": "true"}, "bootstrap.*needs a Tailrace server"),
    ],
)
def test_options_that_need_a_tailrace_server(
    read: "Callable[..., DataFrame]", other: Client, options: dict[str, str], says: str
) -> None:
    name = next(names)
    other.stream(name).create(JSON, body=b"[1]")
    with pytest.raises(PySparkException, match=says):
        read(stream=name, **options).collect()


@pytest.mark.slow
def test_limits_of_a_query_need_a_tailrace_server(
    spark: "SparkSession", reference: ReferenceProcess, other: Client, tmp_path: Path
) -> None:
    name = next(names)
    other.stream(name).create(JSON, body=b'[{"n":0}]')
    copy = Copy(spark, reference.url, name, tmp_path)
    with pytest.raises(StreamingQueryException, match=r"maxMessagesPerTrigger.*needs a Tailrace"):
        copy.run(maxMessagesPerTrigger="10")


@pytest.mark.slow
def test_a_bucket_needs_a_server_with_the_extensions(read: "Callable[..., DataFrame]") -> None:
    with pytest.raises(PySparkException, match="bucket"):
        read(bucket="none").collect()
