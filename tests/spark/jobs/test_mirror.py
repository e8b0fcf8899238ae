"""A mirror has the messages of its source, each once, in order, with their boundaries."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tailrace.client import Client, StreamName
from tailrace.spark.jobs.mirror import MirrorChanged, MirrorResult, MirrorUnsupported, mirror
from tailrace.spark.rows import Range, RangeError, read_rows
from tests.support.server import ServerProcess
from tests.support.together import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds each on a quiet machine, minutes on one where others are at work.

BUCKET = "orders"
Content = dict[str, tuple[str, bool, list[bytes]]]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "target") as process:
        yield process


@pytest.fixture
def mirrored(target: ServerProcess) -> Iterator[Client]:
    with Client(target.url) as made:
        yield made


def content(client: Client, bucket: str = BUCKET) -> Content:
    """Types, closures and messages of all streams."""
    listed = list(client.bucket(bucket).streams())
    found: Content = {each.stream_id: (each.content_type, each.closed, []) for each in listed}
    ranges = [
        Range(StreamName(bucket, each.stream_id), each.earliest_offset or "-1", each.next_offset)
        for each in listed
        if each.next_offset
    ]
    for batch in read_rows(client, ranges, ["stream", "value"]):
        assert not isinstance(batch, RangeError)
        for stream, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found[stream][2].append(value)
    return found


def fill(client: Client, chance: random.Random, streams: int = 12) -> None:
    bucket = client.bucket(BUCKET)
    for number in range(streams):
        stream = bucket.stream(f"ä b-{number}")
        if number % 3 == 0:
            stream.create("application/json")
            stream.append_json(*[{"n": at, "big": 10**20} for at in range(chance.randint(1, 400))])
            continue
        kind = ("text/plain; charset=utf-8", "application/octet-stream")[number % 3 - 1]
        stream.create(kind)
        for _ in range(chance.randint(1, 15)):
            stream.append(chance.randbytes(chance.randint(1, 90)).hex().encode(), kind)


def run(spark: SparkSession, source: Client, target: Client, at: Path, **more: int) -> MirrorResult:
    return mirror(
        spark,
        url=source.url,
        target_url=target.url,
        bucket=BUCKET,
        checkpoint=str(at),
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.slow
def test_a_mirror_copies_everything_and_then_only_new_messages(
    spark: SparkSession, client: Client, mirrored: Client, tmp_path: Path
) -> None:
    """Read by many tasks, in several batches; closing and empty streams come over too."""
    chance = random.Random(3)
    bucket = client.bucket(BUCKET)
    bucket.create()
    fill(client, chance)
    bucket.stream("ä b-2").close()
    bucket.stream("empty").create("text/csv")
    bucket.stream("empty and closed").create("text/csv", closed=True)
    at = tmp_path / "checkpoint"
    first = run(spark, client, mirrored, at, max_messages=700, min_partitions=8)
    source = content(client)
    assert content(mirrored) == source
    assert first.messages == sum(len(messages) for *_, messages in source.values())
    assert (first.created, first.closed, first.batches > 1) == (2, 2, True)

    assert run(spark, client, mirrored, at) == MirrorResult(0, 0, 0, 0)

    bucket.stream("ä b-0").append_json("late", close=True)
    bucket.stream("empty").append(b"no longer", "text/csv")
    bucket.stream("new").create("application/json", body=b"[1, 2]")
    assert run(spark, client, mirrored, at) == MirrorResult(1, 4, 0, 1)
    assert content(mirrored) == content(client)


@pytest.mark.slow
def test_a_batch_whose_commit_was_lost_is_stored_once(
    spark: SparkSession, client: Client, mirrored: Client, tmp_path: Path
) -> None:
    """As after a crash between the sink's last request and the commit log."""
    client.bucket(BUCKET).create()
    fill(client, random.Random(4))
    at = tmp_path / "checkpoint"
    first = run(spark, client, mirrored, at)
    for file in (at / "commits").iterdir():
        file.unlink()
    assert run(spark, client, mirrored, at).messages == first.messages
    assert content(mirrored) == content(client)


@pytest.mark.slow
def test_a_restart_with_other_partitions_is_refused(
    spark: SparkSession, client: Client, mirrored: Client, tmp_path: Path
) -> None:
    client.bucket(BUCKET).create()
    client.bucket(BUCKET).stream("s").create("application/json", body=b"[1]")
    at = tmp_path / "checkpoint"
    run(spark, client, mirrored, at, partitions=3)
    with pytest.raises(MirrorChanged, match="has partitions 3, not 5"):
        run(spark, client, mirrored, at, partitions=5)
    assert run(spark, client, mirrored, at).messages == 0


@pytest.mark.slow
def test_a_mirror_follows_appends_and_closing(
    spark: SparkSession, client: Client, mirrored: Client, tmp_path: Path
) -> None:
    bucket = client.bucket(BUCKET)
    bucket.create()
    bucket.stream("s").create("application/json", body=b"[0]")
    done: list[MirrorResult] = []
    ended = threading.Event()

    def follow() -> None:
        done.append(
            mirror(
                spark,
                url=client.url,
                target_url=mirrored.url,
                bucket=BUCKET,
                target_bucket="copy",
                checkpoint=str(tmp_path / "checkpoint"),
                every_s=0.1,
                stopped=ended.is_set,
            )
        )

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        for number in range(1, 4):
            bucket.stream("s").append_json(number, close=number == 3)
            bucket.stream(f"later {number}").create("text/plain", body=b"x")
        wait_until(lambda: has(mirrored, "copy", content(client)))
    finally:
        ended.set()
        thread.join(60)
    assert done[0].messages == 7
    assert not spark.streams.active


@pytest.mark.slow
def test_streams_are_mirrored_by_their_paths(
    spark: SparkSession, client: Client, mirrored: Client, tmp_path: Path
) -> None:
    """Streams of the base surface have no bucket, at the source and at the target."""
    client.stream("a/b").create("application/json", body=b"[1, 2]", closed=True)
    client.stream("empty").create("text/plain")
    done = mirror(
        spark,
        url=client.url,
        target_url=mirrored.url,
        checkpoint=str(tmp_path / "checkpoint"),
        streams=("a/b", "empty"),
    )
    assert done == MirrorResult(batches=1, messages=2, created=1, closed=1)
    assert next(iter(mirrored.stream("a/b").read("-1"))).data == b"[1,2]"
    assert mirrored.stream("a/b").head().closed


class Other(BaseHTTPRequestHandler):
    """A server without the requests that only Tailrace supports."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{other.server_port}"
        finally:
            other.shutdown()
            thread.join()


@pytest.mark.parametrize("streams", [("a",), ("a", "http://127.0.0.1:1/b")])
def test_a_source_without_numbers_is_refused(
    elsewhere: str, tmp_path: Path, streams: tuple[str, ...]
) -> None:
    """It is refused before anything is stored: its messages would be sorted by value."""
    at = tmp_path / "checkpoint"
    nobody = "http://127.0.0.1:1"
    no_spark = cast("SparkSession", None)
    with pytest.raises(MirrorUnsupported, match="must be a Tailrace server") as refused:
        mirror(no_spark, url=elsewhere, target_url=nobody, checkpoint=str(at), streams=streams)
    assert refused.value.url == (elsewhere if len(streams) == 1 else streams[1])
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    assert not at.exists()


def has(client: Client, bucket: str, expected: Content) -> bool:
    try:
        return content(client, bucket) == expected
    except Exception:
        return False
