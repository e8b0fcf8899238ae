"""A standalone cluster of two workers on loopback, with two addresses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.cluster.standalone import Cluster
from tests.support.server import ServerProcess


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def target(tmp_path: Path) -> Iterator[ServerProcess]:
    """The target server; `server` is the source."""
    with ServerProcess(tmp_path / "target") as process:
        yield process
