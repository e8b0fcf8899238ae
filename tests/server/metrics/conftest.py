"""Servers that nobody else talks to, so that their numbers are known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess
from tests.support.streams import Api

OPTIONS = ("--long-poll-s", "60", "--sse-s", "60")


@pytest.fixture(scope="module", params=["wire", "asgi"])
def counted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BaseServerProcess]:
    """One of each transport, for a whole file of tests: they compare before and after."""
    kind = ServerProcess if request.param == "wire" else AsgiServerProcess
    with kind(tmp_path_factory.mktemp(request.param), *OPTIONS) as server:
        yield server


@pytest.fixture
def api(counted: BaseServerProcess) -> Iterator[Api]:
    api = Api(counted)
    yield api
    api.close()
    assert counted.running
