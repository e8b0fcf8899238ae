"""Spark Connect: `format("tailrace")` by a client whose process has no Java."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.client import Client
from tests.spark.cluster.launching import BIN, Launched, free_port
from tests.support.server import ServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark Connect server."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
    }
    options = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(BIN / "spark-submit"), "--master", "local[2,4]", *options, "--class", server]
    with Launched([*command, "spark-internal"], tmp_path / "connect", "connect") as launched:
        launched.wait_for("Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


def test_reads_writes_queries_and_sql_over_connect(
    connect: str, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    module = "tests.spark.cluster.connect_client"
    command = [sys.executable, "-m", module, connect, server.url, str(tmp_path)]
    with Launched(command, tmp_path / "client", "client") as launched:
        line = launched.finish().rpartition("FOUND ")[2]
    found = json.loads(line)
    assert found["batch"] == list(range(100))
    copied = client.bucket("copied").stream("copy").read_json()
    assert [item.value["id"] for item in copied] == list(range(100))
    assert found["sql"] == [100, 100, 0]
