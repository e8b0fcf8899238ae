"""`spark.read.format("tailrace")` against a real server: what is read, and what is refused."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tailrace.client import Client
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

Read = Callable[..., "DataFrame"]


@pytest.fixture
def read(spark: "SparkSession", server: ServerProcess) -> Read:
    def load(schema: str | None = None, **options: str) -> "DataFrame":
        reader = spark.read.format("tailrace").option("url", server.url).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    return load


def fill(client: Client, bucket: str, streams: dict[str, list[Any]]) -> None:
    client.bucket(bucket).create()
    for name, values in streams.items():
        stream = client.bucket(bucket).stream(name)
        stream.create("application/json")
        if values:
            stream.append_json(*values)


def values_of(frame: "DataFrame") -> dict[str, list[Any]]:
    """By stream, in the order of messages, which must be the order of rows in a partition too."""
    found: dict[str, list[Any]] = {}
    for row in frame.orderBy("stream", "message").collect():
        found.setdefault(row.stream, []).append(json.loads(bytes(row.value)))
    return found


def test_a_fork_has_what_it_inherits_and_its_own(client: Client, read: Read) -> None:
    fill(client, "forked", {"a": [1, 2]})
    source = client.bucket("forked").stream("a")
    source.fork("b")
    source.append_json(3)
    client.bucket("forked").stream("b").append_json(4)
    assert values_of(read(bucket="forked")) == {"a": [1, 2, 3], "b": [1, 2, 4]}
    # The deleted source is kept for its fork, and is not part of the table.
    source.delete()
    assert values_of(read(bucket="forked")) == {"b": [1, 2, 4]}


def test_a_bucket_is_a_table(client: Client, read: Read) -> None:
    before = datetime.now(UTC)
    streams: dict[str, list[Any]] = {"a": [1, "zwei", None], "b": [{"x": [1.5]}], "empty": []}
    fill(client, "table", streams)
    frame = read(bucket="table")
    assert values_of(frame) == {"a": streams["a"], "b": streams["b"]}
    row = frame.where("stream = 'a' and message = 1").first()
    assert row is not None
    assert row.bucket == "table"
    assert row.content_type == "application/json"
    assert row.offset == "0000000000000001_0000000000000002"
    assert row.next_offset == "0000000000000002_0000000000000009"
    assert before.timestamp() - 1 < row.time.timestamp() < datetime.now(UTC).timestamp() + 1


def test_streams_by_name_prefix_and_pattern(client: Client, read: Read) -> None:
    fill(
        client,
        "names",
        {name: [name] for name in ("order-1", "order-2", "user-1", "a,b", "a b?")},
    )
    names = {"order-1", "order-2", "user-1", "a,b", "a b?"}
    assert values_of(read(bucket="names")).keys() == names
    assert values_of(read(bucket="names", prefix="order-")).keys() == {"order-1", "order-2"}
    assert values_of(read(bucket="names", pattern="*-1")).keys() == {"order-1", "user-1"}
    assert values_of(read(bucket="names", stream="a b?")).keys() == {"a b?"}
    assert values_of(read(bucket="names", streams='["a,b", "user-1"]')).keys() == {"a,b", "user-1"}


def test_paths_of_the_base_protocol(client: Client, read: Read) -> None:
    for path in ("deep/er/one", "two"):
        client.stream(path).create("application/json", body=json.dumps([path]))
    frame = read(streams="deep/er/one,two")
    assert values_of(frame) == {"deep/er/one": ["deep/er/one"], "two": ["two"]}
    assert frame.where("bucket is null").count() == 2


def test_binary_messages_keep_their_boundaries(client: Client, read: Read) -> None:
    stream = client.stream("bytes")
    stream.create("application/octet-stream")
    messages = [b"\x00\xff", b"a", b"\n\n", bytes(range(256))]
    for message in messages:
        stream.append(message)
    rows = read(stream="bytes").orderBy("message").collect()
    assert [bytes(row.value) for row in rows] == messages
    with pytest.raises(PySparkException, match="not UTF-8"):
        read(stream="bytes", value="text").collect()


def test_text_and_picked_columns(client: Client, read: Read) -> None:
    fill(client, "texts", {"a": ["ä", {"b": 1}]})
    frame = read(bucket="texts", value="text")
    assert sorted(row.value for row in frame.collect()) == ['"ä"', '{"b":1}']
    frame = read("value string, message long", bucket="texts")
    assert frame.columns == ["value", "message"]
    assert frame.orderBy("message").first() == ('"ä"', 0)
    with pytest.raises(PySparkException, match="message as string"):
        read("message string", bucket="texts").collect()


def test_typed_columns_and_rescued_values(client: Client, read: Read) -> None:
    fill(client, "typed", {"a": [{"id": 1, "name": "one"}, {"id": "2", "more": True}, 3]})
    frame = read("id long, name string, _message long, _rescued string", bucket="typed")
    assert [tuple(row) for row in frame.orderBy("_message").collect()] == [
        (1, "one", 0, None),
        (None, None, 1, '{"id":"2","more":true}'),
        (None, None, 2, "3"),
    ]


def test_starting_and_ending_offsets(client: Client, read: Read) -> None:
    fill(client, "bounds", {"a": list(range(10)), "b": list(range(5))})
    rows = read(bucket="bounds", stream="a").orderBy("message").collect()
    start, end = json.dumps({"a": rows[3].offset}), json.dumps({"a": rows[7].offset})
    assert values_of(read(bucket="bounds", startingOffsets=start, endingOffsets=end)) == {
        "a": [3, 4, 5, 6],
        "b": [0, 1, 2, 3, 4],
    }
    assert values_of(read(bucket="bounds", startingOffsets="latest")) == {}
    assert values_of(read(bucket="bounds", startingTimestamp="2100-01-01")) == {}
    assert values_of(read(bucket="bounds", endingTimestamp="2000-01-01")) == {}
    moment = str(int(rows[0].time.timestamp() * 1000))
    assert len(values_of(read(bucket="bounds", startingTimestamp=moment))["a"]) == 10


def test_large_streams_are_split_and_small_ones_grouped(client: Client, read: Read) -> None:
    fill(client, "sizes", {"large": [{"n": n} for n in range(5000)]})
    for number in range(50):
        stream = client.bucket("sizes").stream(f"small-{number}")
        stream.create("application/json", body=b"[1]")
    frame = read(bucket="sizes", partitionBytes="20000")
    assert 3 <= frame.rdd.getNumPartitions() <= 20
    found = values_of(frame)
    assert [item["n"] for item in found.pop("large")] == list(range(5000))
    assert len(found) == 50
    assert read(bucket="sizes", minPartitions="16").rdd.getNumPartitions() >= 15


def test_the_view_of_sql_and_its_options(
    client: Client, spark: "SparkSession", server: ServerProcess
) -> None:
    fill(client, "sql1", {"a": [1, 2, 3]})
    spark.sql(
        "CREATE TEMPORARY VIEW rows_of_sql1 USING tailrace "
        f"OPTIONS (url '{server.url}', bucket 'sql1')"
    )
    try:
        assert spark.sql("SELECT count(*) FROM rows_of_sql1").collect()[0][0] == 3
    finally:
        spark.catalog.dropTempView("rows_of_sql1")


def test_messages_covered_by_a_snapshot(client: Client, read: Read) -> None:
    fill(client, "snaps", {"a": [1, 2, 3, 4]})
    stream = client.bucket("snaps").stream("a")
    rows = read(bucket="snaps").orderBy("message").collect()
    stream.publish_snapshot(b'"two"', rows[2].offset, "application/json")
    start = json.dumps({"a": rows[0].offset})
    assert values_of(read(bucket="snaps")) == {"a": [3, 4]}
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        read(bucket="snaps", startingOffsets=start).collect()
    loose = read(bucket="snaps", startingOffsets=start, failOnDataLoss="false")
    assert values_of(loose) == {"a": [3, 4]}
    for options in ({}, {"startingOffsets": start}):
        rows = read(bucket="snaps", bootstrap="true", **options).orderBy("message").collect()
        assert [(row.is_snapshot, bytes(row.value)) for row in rows] == [
            (True, b'"two"'),
            (False, b"3"),
            (False, b"4"),
        ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stream": "never"}, "never"),
        ({"bucket": "missing"}, "404"),
        ({"bucket": "missing", "limit": "5"}, "limit"),
        ({}, "streams or bucket is required"),
    ],
)
def test_unreadable_streams_are_errors(options: dict[str, str], says: str, read: Read) -> None:
    with pytest.raises(PySparkException, match=says):
        read(**options).collect()
