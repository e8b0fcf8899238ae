"""Streams to a table, and the table to the streams of a second server: equal byte for byte."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.client import Client
from tailrace.spark.jobs.archive import archive
from tailrace.spark.jobs.replay import ReplayAmbiguous, ReplayChanged, replay
from tests.spark.jobs.contents import contents
from tests.support.chance import seeded
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

BUCKET = "trip"
TYPES = ("application/json", "text/plain; charset=utf-8", "application/octet-stream", "image/png")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "other") as process:
        yield process


def random_json(chance: random.Random, depth: int = 0) -> object:
    kinds: list[object] = [
        None,
        True,
        1.5,
        chance.randrange(-(1 << 70), 1 << 70),
        "ä\u2028\x00\n",
        "",
    ]
    if depth < 3:
        kinds += [
            [random_json(chance, depth + 1) for _ in range(chance.randrange(4))],
            {chance.choice(["", "a", "a.b", "ß"]): random_json(chance, depth + 1)},
        ]
    return chance.choice(kinds)


def message(chance: random.Random, content_type: str) -> bytes:
    if content_type == "application/json":
        # An array is several messages at once: in another one it is one.
        return json.dumps([random_json(chance)], indent=chance.choice([None, 1])).encode()
    if content_type.startswith("text/"):
        return "".join(chance.choices("aß\u2028😀\n\x00", k=chance.randrange(1, 50))).encode()
    return chance.randbytes(chance.choice([1, 2, 3, 100, 70_000]))


def fill(client: Client, chance: random.Random, streams: int) -> None:
    for number in range(streams):
        content_type = TYPES[number % len(TYPES)]
        stream = client.bucket(BUCKET).stream(f"{number} ü%/"[:-1])
        stream.create(content_type)
        for _ in range(chance.randrange(1, 12)):
            stream.append(message(chance, content_type), content_type)


@pytest.mark.parametrize("format", ["parquet", "iceberg", "delta"])
def test_random_streams_come_back_as_they_were(
    spark: "SparkSession", client: Client, server: ServerProcess,
    other: ServerProcess, tmp_path: Path, format: str,
) -> None:  # fmt: skip
    """
    Goal: types, messages and boundaries, after one replay, after a repeated and a continued one.

    The table grows while a replay is under way: what was sent before must be sent as before.
    """
    table = tmp_path / "table"

    def store() -> None:
        archive(
            spark, url=server.url, bucket=BUCKET, table=table, format=format,
            max_messages=40, compact_files=2,
        )  # fmt: skip

    def send() -> tuple[int, int]:
        done = replay(
            spark, table=table, format=format, url=other.url, replay_id="trip 1", partitions=3,
        )  # fmt: skip
        return done.rounds, done.messages

    client.bucket(BUCKET).create()
    with seeded(format) as chance, Client(other.url) as target:
        fill(client, chance, 12)
        store()
        before = contents(client, BUCKET)
        assert send() == (1, sum(len(content.messages) for content in before.values()))
        assert contents(target, BUCKET) == before
        # As after a crash at the end: all is sent again, then what is new.
        fill(client, chance, 16)
        store()
        next((table / "_tailrace" / "replays").glob("*/0.done")).unlink()
        now = contents(client, BUCKET)
        assert send() == (2, sum(len(content.messages) for content in now.values()))
        assert contents(target, BUCKET) == now
        assert send() == (0, 0)


def test_an_interrupted_replay_is_completed(
    spark: "SparkSession", client: Client, server: ServerProcess,
    other: ServerProcess, tmp_path: Path,
) -> None:  # fmt: skip
    table = tmp_path / "table"
    client.bucket(BUCKET).create()
    with seeded() as chance, Client(other.url) as target:
        fill(client, chance, 8)
        archive(spark, url=server.url, bucket=BUCKET, table=table)
        expected = contents(client, BUCKET)
        # In the way: a stream of another type.
        target.bucket("copy").create()
        blocked = target.bucket("copy").stream(next(iter(expected)))
        blocked.create("application/x-other")

        def send(**changed: str) -> None:
            replay(
                spark, table=table, replay_id="half",
                **{"url": other.url, "bucket": "copy", **changed},  # type: ignore[arg-type]
            )  # fmt: skip

        with pytest.raises(Exception, match=r"409|[Cc]ontent"):
            send()
        blocked.delete()
        with pytest.raises(ReplayChanged, match="another replay id"):
            send(url=server.url)
        send()
        assert contents(target, "copy") == expected


def test_a_stream_that_was_created_again_is_not_mixed_with_the_old_one(
    spark: "SparkSession", client: Client, server: ServerProcess, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    stream = client.bucket(BUCKET).stream("s")
    client.bucket(BUCKET).create()
    for text in (b"old", b"new"):
        stream.create("text/plain")
        stream.append(text, "text/plain")
        archive(spark, url=server.url, bucket=BUCKET, table=table, fail_on_data_loss=False)
        stream.delete()
    with pytest.raises(ReplayAmbiguous, match="choose by time"):
        replay(spark, table=table, url=server.url, replay_id="r")
    new = f"hex(value) = '{b'new'.hex().upper()}'"
    assert replay(spark, table=table, url=server.url, replay_id="n", where=new).messages == 1
    assert contents(client, BUCKET)["s"].messages == [b"new"]


def test_streams_without_a_bucket_return_to_their_paths(
    spark: "SparkSession", client: Client, server: ServerProcess,
    other: ServerProcess, tmp_path: Path,
) -> None:  # fmt: skip
    paths = ("a/b", "c d")
    for path in paths:
        client.stream(path).create("text/plain")
        client.stream(path).append(path, "text/plain")
    table = tmp_path / "table"
    archive(spark, url=server.url, streams=paths, table=table)
    # A second source in the same table, with its own checkpoint.
    client.bucket(BUCKET).create()
    client.bucket(BUCKET).stream("s").create("text/plain")
    client.bucket(BUCKET).stream("s").append("in a bucket", "text/plain")
    archive(spark, url=server.url, bucket=BUCKET, table=table)
    replay(spark, table=table, url=other.url, replay_id="r", partitions=2)
    with Client(other.url) as target:
        assert [target.stream(path).read_all().data.decode() for path in paths] == list(paths)
        assert contents(target, BUCKET) == contents(client, BUCKET)
