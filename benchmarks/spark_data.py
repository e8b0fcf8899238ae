"""Shared by the Spark workloads: one session, messages of 230 bytes, and streams of them."""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.model import Server
from tailrace.client import Client
from tailrace.spark.session import new_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKET = "bench"
BATCH = 4_000
NOTE = "lorem ipsum dolor sit amet consetetur " * 3 + "sadipscing elitr, sed diam no"
SCHEMA = "id long, user string, action string, amount double, ok boolean, note string"
_started: list[SparkSession] = []


def session() -> SparkSession:
    """Spark on two cores, which it shares with the server, as the goals say."""
    if not _started:
        conf = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
        _started.append(new_session("benchmarks", "local[2]", conf))
        atexit.register(_started[0].stop)
        # The first job of a session loads classes and starts workers.
        _started[0].range(1000).repartition(4).count()
    return _started[0]


def url_of(server: Server) -> str:
    return f"http://{server.host}:{server.port}"


def message(number: int, key: int | None = None) -> bytes:
    """About 230 bytes of JSON with six fields."""
    found = {
        "id": number if key is None else key,
        "user": f"user-{number % 5000:05d}",
        "action": ("view", "click", "buy", "leave")[number % 4],
        "amount": number % 1000 / 8,
        "ok": number % 3 == 0,
        "note": f"{number:010d}{NOTE}",
    }
    return json.dumps(found, separators=(",", ":")).encode()


def body(numbers: Sequence[int]) -> bytes:
    return b"[" + b",".join(map(message, numbers)) + b"]"


def make_bucket(server: Server) -> None:
    with Client(url_of(server)) as client:
        client.bucket(BUCKET).create()


def make_streams(server: Server, bodies: Iterator[tuple[str, bytes]], threads: int = 8) -> None:
    """Create streams with initial content, one request each."""
    with Client(url_of(server)) as client, ThreadPoolExecutor(threads) as pool:
        bucket = client.bucket(BUCKET)
        free_slots = threading.Semaphore(4 * threads)

        def create(name: str, content: bytes) -> None:
            try:
                bucket.stream(name).create("application/json", body=content)
            finally:
                free_slots.release()

        jobs = []
        for name, content in bodies:
            free_slots.acquire()
            jobs.append(pool.submit(create, name, content))
        for job in jobs:
            job.result()


def fill_one(server: Server, name: str, total: int) -> None:
    """One stream of many messages."""
    with Client(url_of(server), timeout_s=120) as client:
        stream = client.bucket(BUCKET).stream(name)
        stream.create("application/json")
        for start in range(0, total, BATCH):
            stream.append(body(range(start, min(total, start + BATCH))), "application/json")


def read(server: Server, **options: str) -> DataFrame:
    reader = session().read.format("tailrace").option("url", url_of(server))
    return reader.options(bucket=BUCKET, **options).load()


def spent(load: Callable[[], DataFrame]) -> float:
    """Seconds to load a DataFrame and to read it to its end; the rows are dropped."""
    began = time.perf_counter()
    load().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began
