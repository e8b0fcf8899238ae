"""Servers whose connections can be counted, and a collection after each test."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator

import pytest

from tests.support.server import ServerProcess


@pytest.fixture(scope="package")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Does not recycle connections within a test, and serves this package only."""
    with ServerProcess(tmp_path_factory.mktemp("steady"), "--engine", "memory") as running:
        yield running


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]
