"""A source server, a target server, and a pipeline between them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.client import Client
from tests.spark.faults.pipeline import Pipeline, Source
from tests.support.server import ServerProcess


@pytest.fixture
def target(tmp_path: Path) -> Iterator[ServerProcess]:
    """The target server; `server` is the source."""
    with ServerProcess(tmp_path / "target") as process:
        yield process


@pytest.fixture
def source(client: Client) -> Source:
    return Source(client)


@pytest.fixture
def sink(target: ServerProcess) -> Iterator[Client]:
    with Client(target.url) as made:
        yield made


@pytest.fixture
def pipeline(server: ServerProcess, target: ServerProcess, tmp_path: Path) -> Pipeline:
    return Pipeline(server.url, target.url, str(tmp_path / "checkpoint"))
