"""Planning and reading as Spark does it, without Spark: a real server, no JVM."""

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from tailrace.client import Client
from tailrace.spark.options import OptionInvalid
from tailrace.spark.source.data_source import TailraceDataSource
from tailrace.spark.source.errors import MessagesGone, StreamGone, StreamReplaced
from tailrace.spark.source.planning import SourcePartition
from tests.support.server import ServerProcess

ALL = ReadAllAvailable()


_opened: list[DataSourceStreamReader] = []


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    """Readers are stopped, as Spark stops those of a query."""
    yield
    while _opened:
        _opened.pop().stop()


def stream_reader(server: ServerProcess, **options: str) -> DataSourceStreamReader:
    source = TailraceDataSource({"url": server.url, **options})
    reader = source.streamReader(StructType(source.schema().fields))
    _opened.append(reader)
    return reader


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    """As Spark keeps offsets: in a file, as text."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


class Query:
    """What the engine of Spark does with a reader, one micro-batch after the other."""

    def __init__(self, reader: DataSourceStreamReader, start: dict[str, Any] | None = None) -> None:
        self.reader = reader
        self.at = through_json(reader.initialOffset()) if start is None else start

    def plan(self, limit: ReadLimit = ALL) -> tuple[dict[str, Any], list[InputPartition]]:
        end = through_json(self.reader.latestOffset(self.at, limit))
        return end, list(self.reader.partitions(self.at, end))

    def batch(self, limit: ReadLimit = ALL) -> dict[str, list[Any]]:
        end, partitions = self.plan(limit)
        self.at = end
        return rows_of(self.reader, partitions)


def rows_of(
    reader: DataSourceStreamReader, partitions: list[InputPartition]
) -> dict[str, list[Any]]:
    """By stream, in the order in which tasks read them; readers and partitions travel to tasks."""
    found: dict[str, list[Any]] = {}
    for partition in partitions:
        task: DataSourceStreamReader = pickle.loads(pickle.dumps(reader))
        for batch in task.read(pickle.loads(pickle.dumps(partition))):
            assert isinstance(batch, pa.RecordBatch)
            for row in batch.to_pylist():
                found.setdefault(row["stream"], []).append(json.loads(row["value"]))
    return found


def create(client: Client, bucket: str, **streams: list[Any]) -> None:
    client.bucket(bucket).create()
    for name, values in streams.items():
        client.bucket(bucket).stream(name).create("application/json", body=json.dumps(values))


def test_a_plan_depends_on_its_read_positions_alone(client: Client, server: ServerProcess) -> None:
    create(client, "pure", a=list(range(5000)), b=[1])
    query = Query(stream_reader(server, bucket="pure", partitionBytes="4000"))
    start = query.at
    end, planned = query.plan()
    client.bucket("pure").stream("a").append_json(*range(5000, 9000))
    client.bucket("pure").stream("c").create("application/json", body=b"[3]")
    server.kill()
    server.start()
    another = stream_reader(server, bucket="pure", partitionBytes="4000")
    again = another.partitions(start, end)
    ranges = [part.ranges for part in planned if isinstance(part, SourcePartition)]
    assert len(ranges) > 2
    assert [part.ranges for part in again if isinstance(part, SourcePartition)] == ranges
    assert rows_of(another, list(again)) == {"a": list(range(5000)), "b": [1]}


def test_without_new_messages_the_offset_stays_the_same(
    client: Client, server: ServerProcess
) -> None:
    create(client, "quiet", a=[1])
    query = Query(stream_reader(server, bucket="quiet"))
    query.batch()
    end, planned = query.plan()
    assert end == query.at
    assert planned == []


def test_only_changed_streams_are_planned(client: Client, server: ServerProcess) -> None:
    names = {f"s{number}": [number] for number in range(60)}
    create(client, "many", **names)
    query = Query(stream_reader(server, bucket="many"))
    assert len(query.batch()) == 60
    client.bucket("many").stream("s7").append_json("new")
    assert query.batch() == {"s7": ["new"]}
    client.bucket("many").stream("late").create("application/json", body=b"[1]")
    assert query.batch() == {"late": [1]}


def test_a_server_without_its_change_history_is_listed_again(
    client: Client, server: ServerProcess
) -> None:
    create(client, "forget", a=[1], b=[1])
    query = Query(stream_reader(server, bucket="forget"))
    query.batch()
    server.kill()
    server.start()
    client.bucket("forget").stream("b").append_json(2)
    assert query.batch() == {"b": [2]}


def test_limits_are_shared_among_streams(client: Client, server: ServerProcess) -> None:
    create(client, "shares", a=list(range(90)), b=list(range(10)))
    query = Query(stream_reader(server, bucket="shares", maxMessagesPerTrigger="20"))
    limit = query.reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    counted: Counter[str] = Counter()
    found: dict[str, list[Any]] = {"a": [], "b": []}
    for _ in range(5):
        batch = query.batch(limit)
        assert sum(map(len, batch.values())) == 20
        for name, values in batch.items():
            found[name] += values
            counted[name] += 1
    assert found == {"a": list(range(90)), "b": list(range(10))}
    assert counted["b"] >= 4
    # Spark may ask for all there is, whatever the options say.
    other = Query(stream_reader(server, bucket="shares", maxMessagesPerTrigger="20"))
    assert sum(map(len, other.batch(ALL).values())) == 100


def test_available_now_ends_with_the_data_at_its_start(
    client: Client, server: ServerProcess
) -> None:
    """AvailableNow: what comes after its start belongs to the next run."""
    create(client, "fixed", a=[1])
    query = Query(stream_reader(server, bucket="fixed"))
    query.reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    client.bucket("fixed").stream("a").append_json(2)
    assert query.batch() == {"a": [1]}
    assert query.batch() == {}


@pytest.mark.parametrize("loose", [False, True])
def test_a_stream_deleted_between_planning_and_reading(
    client: Client, server: ServerProcess, loose: bool
) -> None:
    create(client, "goes", a=[1, 2], b=[3])
    reader = stream_reader(server, bucket="goes", failOnDataLoss=str(not loose).lower())
    query = Query(reader)
    _, planned = query.plan()
    client.bucket("goes").stream("a").delete()
    if not loose:
        with pytest.raises(StreamGone, match="failOnDataLoss"):
            rows_of(reader, planned)
    else:
        assert rows_of(reader, planned) == {"b": [3]}


@pytest.mark.parametrize("loose", [False, True])
def test_a_stream_replaced_between_planning_and_reading(
    client: Client, server: ServerProcess, loose: bool
) -> None:
    create(client, "swaps", a=[1, 2])
    reader = stream_reader(server, bucket="swaps", failOnDataLoss=str(not loose).lower())
    query = Query(reader)
    _, planned = query.plan()
    client.bucket("swaps").stream("a").delete()
    client.bucket("swaps").stream("a").create("application/json", body=b"[9]")
    if not loose:
        with pytest.raises(StreamReplaced):
            rows_of(reader, planned)
    else:
        assert rows_of(reader, planned) == {}


def test_a_snapshot_published_between_planning_and_reading(
    client: Client, server: ServerProcess
) -> None:
    create(client, "snap", a=[])
    stream = client.bucket("snap").stream("a")
    middle = stream.append_json(1, 2).next_offset
    assert middle is not None
    stream.append_json(3)
    plans = {}
    for name, options in {
        "strict": {},
        "loose": {"failOnDataLoss": "false"},
        "boot": {"bootstrap": "true"},
    }.items():
        reader = stream_reader(server, bucket="snap", **options)
        plans[name] = (reader, Query(reader).plan()[1])
    stream.publish_snapshot(b'"first two"', middle, "application/json")
    with pytest.raises(MessagesGone):
        rows_of(*plans["strict"])
    assert rows_of(*plans["loose"]) == {"a": [3]}
    assert rows_of(*plans["boot"]) == {"a": ["first two", 3]}


@pytest.mark.parametrize("selection", [{"bucket": "named"}, {"bucket": "named", "stream": "a"}])
@pytest.mark.parametrize("values", [[7], [7, 8, 9]])
def test_a_stream_that_was_created_again_is_detected(
    client: Client, server: ServerProcess, selection: dict[str, str], values: list[int]
) -> None:
    """For every selection, and for a shorter and an equally long stream."""
    create(client, "named", a=[1, 2, 3])
    strict = Query(stream_reader(server, **selection))
    loose = Query(stream_reader(server, **selection, failOnDataLoss="false"))
    assert strict.batch() == loose.batch() == {"a": [1, 2, 3]}
    client.bucket("named").stream("a").delete()
    client.bucket("named").stream("a").create("application/json", body=json.dumps(values))
    with pytest.raises(StreamReplaced):
        strict.batch()
    assert loose.batch() == {"a": values}


def test_a_closed_stream_that_was_read_may_be_deleted(
    client: Client, server: ServerProcess
) -> None:
    create(client, "finish", a=[1], b=[2])
    client.bucket("finish").stream("a").close()
    query = Query(stream_reader(server, bucket="finish", streams="a,b"))
    assert query.batch() == {"a": [1], "b": [2]}
    client.bucket("finish").stream("a").delete()
    assert query.batch() == {}


def test_a_repeated_batch_of_a_replaced_stream_is_an_error(
    client: Client, server: ServerProcess
) -> None:
    """A restart replays the last batch of the log before it looks at anything else."""
    create(client, "replay", a=[1, 2])
    query = Query(stream_reader(server, bucket="replay"))
    end, _ = query.plan()
    client.bucket("replay").stream("a").delete()
    client.bucket("replay").stream("a").create("application/json", body=b"[8,9]")
    with pytest.raises(StreamReplaced):
        stream_reader(server, bucket="replay").partitions(query.at, end)


@pytest.mark.parametrize("loose", [False, True])
def test_a_stream_deleted_while_a_batch_is_planned(
    client: Client, server: ServerProcess, loose: bool
) -> None:
    create(client, "cutting", a=list(range(50)), b=list(range(50)))
    reader = stream_reader(
        server, bucket="cutting", maxMessagesPerTrigger="10",
        failOnDataLoss=str(not loose).lower(),
    )  # fmt: skip
    query = Query(reader)
    reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    client.bucket("cutting").stream("a").delete()
    if not loose:
        with pytest.raises(StreamGone):
            query.batch(ReadMaxRows(10))
        return
    found: list[int] = []
    while batch := query.batch(ReadMaxRows(10)):
        found += batch["b"]
    assert found == list(range(50))


def test_offsets_of_unknown_streams_are_refused(client: Client, server: ServerProcess) -> None:
    create(client, "spelt", orders=[1])
    reader = stream_reader(server, bucket="spelt", startingOffsets='{"order": "-1"}')
    with pytest.raises(OptionInvalid, match="'order'"):
        reader.initialOffset()
