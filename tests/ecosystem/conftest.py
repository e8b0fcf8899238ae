from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import BaseServerProcess, RootAsgiServerProcess, ServerProcess

SSE_S = "2"
"""Connections end often. Clients take shorter ones for those of a broken proxy."""


@pytest.fixture(
    scope="package", params=[ServerProcess, RootAsgiServerProcess], ids=["wire", "asgi"]
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BaseServerProcess]:
    server_class: type[BaseServerProcess] = request.param
    options = ("--engine", "rocksdb", "--sse-s", SSE_S)
    with server_class(tmp_path_factory.mktemp("ecosystem") / "data", *options) as running:
        yield running
