"""One Spark session for all tests, and a server for each."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.client import Client
from tailrace.spark.session import new_session
from tests.support.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """`local[2,4]`: two tasks at once, four attempts each."""
    scratch = tmp_path_factory.mktemp("spark")
    session = new_session(
        "tests",
        "local[2]",
        {
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "4",
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            # Batches follow each other at once: a test waits for rows, not for Spark.
            "spark.sql.streaming.pollingDelay": "10ms",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "server") as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client
