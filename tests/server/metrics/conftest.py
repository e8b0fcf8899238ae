"""A server per test module, so that no other test changes its counters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess
from tests.support.streams import Api

OPTIONS = ("--long-poll-s", "60", "--sse-s", "60")


@pytest.fixture(scope="module", params=["wire", pytest.param("asgi", marks=pytest.mark.slow)])
def counted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BaseServerProcess]:
    """A server for a module; its tests compare counters before and after."""
    kind = ServerProcess if request.param == "wire" else AsgiServerProcess
    with kind(tmp_path_factory.mktemp(request.param), *OPTIONS) as server:
        yield server


@pytest.fixture
def api(counted: BaseServerProcess) -> Iterator[Api]:
    api = Api(counted)
    yield api
    api.close()
    assert counted.running
