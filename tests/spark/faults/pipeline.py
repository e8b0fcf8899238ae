"""
The pipeline that is disturbed: numbered messages of several streams, through Spark, into others.

The numbers of each stream are 0, 1, 2 … So what comes out says by itself whether anything was lost,
doubled or put out of order, whatever happened on the way.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tailrace.client import Client, NotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SOURCE", "TARGET", "Pipeline", "Source", "gaps", "stored", "total", "whole"]

SOURCE = "source"
TARGET = "target"
STREAMS = 5
ORDERED = {"orderBy": "n"}


class Source:
    """The bucket that is read, and how many numbers each of its streams has got."""

    def __init__(self, client: Client, streams: int = STREAMS) -> None:
        self._bucket = client.bucket(SOURCE)
        self._bucket.create()
        self.names = [f"s{at}" for at in range(streams)]
        for name in self.names:
            self._bucket.stream(name).create("application/json")
        self.count = 0

    def add(self, count: int) -> None:
        """Append more numbers to every stream."""
        for name in self.names:
            numbers = range(self.count, self.count + count)
            self._bucket.stream(name).append_json(*[{"n": n} for n in numbers])
        self.count += count

    def repeat(self, count: int) -> None:
        """Append the last numbers again, for a pipeline that drops duplicates."""
        for name in self.names:
            numbers = range(self.count - count, self.count)
            self._bucket.stream(name).append_json(*[{"n": n} for n in numbers])

    @property
    def total(self) -> int:
        return self.count * len(self.names)

    @property
    def all(self) -> dict[str, list[int]]:
        """The expected content of the target."""
        return {name: list(range(self.count)) for name in self.names}


def stored(client: Client, bucket: str = TARGET) -> dict[str, list[int]]:
    """The messages of the target, by stream, in order."""
    listed = client.bucket(bucket).streams()
    names = [item.stream_id for item in listed]
    return {
        name: [item.value["n"] for item in client.bucket(bucket).stream(name).read_json()]
        for name in sorted(names)
    }


def total(client: Client, bucket: str = TARGET) -> int:
    """The number of messages of the target; 0 if it does not exist."""
    try:
        listed = list(client.bucket(bucket).streams())
    except NotFound:
        return 0
    return sum(int((item.next_offset or "0_0").split("_")[0]) for item in listed)


def gaps(found: Mapping[str, list[int]], count: int) -> dict[str, tuple[list[int], list[int]]]:
    """The lost and the duplicated numbers below `count`, by stream."""
    return {
        name: (
            sorted(set(range(count)) - set(numbers)),
            sorted({n for n in numbers if numbers.count(n) > 1}),
        )
        for name, numbers in found.items()
        if numbers != list(range(count))
    }


def whole(found: Mapping[str, list[int]]) -> bool:
    """Whether streams have each number once and in order, up to their tails."""
    return all(numbers == list(range(len(numbers))) for numbers in found.values())


@dataclass
class Pipeline:
    """The parameters of a query; sent to a driver process as JSON."""

    source_url: str
    target_url: str
    checkpoint: str
    shuffle: str = "stream"
    """
    stream: rows of a stream meet in one task, in any order; state: duplicates are dropped before.
    none: rows of one stream go on as they come, and are sent while others are still made.
    """
    limit: int = 100
    options: dict[str, str] = field(default_factory=dict)
    """More options of the sink; an empty one leaves out what would be there."""

    def json(self) -> str:
        return json.dumps(asdict(self))

    def read(self, spark: "SparkSession", **options: str) -> "DataFrame":
        return (
            spark.readStream.format("tailrace")
            .options(url=self.source_url, bucket=SOURCE, value="text", **options)
            .option("maxMessagesPerTrigger", self.limit)
            .load()
        )

    def shaped(self, rows: "DataFrame") -> "DataFrame":
        number = F.get_json_object("value", "$.n").cast("long").alias("n")
        frame = rows.select("stream", "value", number)
        if self.shuffle == "state":
            frame = frame.dropDuplicates(["stream", "n"])
        if self.shuffle == "none":
            return rows.select("value")
        return frame.repartition(3, "stream")

    @property
    def sink(self) -> dict[str, str]:
        options = {
            "url": self.target_url,
            "bucket": TARGET,
            "createStreams": "true",
            "createBuckets": "true",
            # A few messages a request: a batch is many, and is disturbed between them.
            "maxRequestBytes": "60",
            **({"stableInput": "true", "stream": "s0"} if self.shuffle == "none" else ORDERED),
            **self.options,
        }
        return {name: value for name, value in options.items() if value}

    def start(self, rows: "DataFrame", *, now: bool = True) -> "StreamingQuery":
        """Start the query; it ends with the current data, or not at all."""
        writer = rows.writeStream.format("tailrace").options(**self.sink)
        writer = writer.option("checkpointLocation", self.checkpoint)
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run(self, spark: "SparkSession", **changes: Any) -> None:
        """Process the current data; raises the query's error."""
        query = self.start(self.shaped(self.read(spark)), **changes)
        try:
            query.awaitTermination()
        finally:
            query.stop()
