"""Too many silent connections do not affect other clients."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import Authority
from tests.support.server import ServerProcess

CONNECTIONS_MAX = 50
# More than the allowed connections, spare files and lingering rejected connections together.
OPENED = CONNECTIONS_MAX + 1024 + 300
TEXT = {"Content-Type": "text/plain"}


@contextmanager
def idle_connections(port: int) -> Iterator[None]:
    """Open this many connections without a request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, OPENED + 500)), hard))
    with ExitStack() as stack:
        for _ in range(OPENED):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "secure", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "tls"]
)
def test_the_store_can_still_open_its_files(tmp_path: Path, secure: bool) -> None:
    """
    Goal: idle connections cannot use every file that the server may open.

    Method: connect a client, open many idle connections, and append so much that RocksDB needs new
    files for its log and its tables.
    """
    authority = Authority(tmp_path)
    options = ["--connections-max", str(CONNECTIONS_MAX)]
    if secure:
        certificate, key = authority.issue("server")
        options += ["--tls-cert", str(certificate), "--tls-key", str(key)]
    with ServerProcess(tmp_path / "data", *options) as server:
        url = server.url.replace("http:", "https:") if secure else server.url
        with httpx.Client(base_url=url, verify=authority.client_context(), timeout=60) as client:
            assert client.put("/v1/stream/x", headers=TEXT).status_code == 201
            with idle_connections(server.port):
                for _ in range(4):
                    body = b"x" * (30 << 20)
                    response = client.post("/v1/stream/x", content=body, headers=TEXT)
                    assert response.status_code == 204
            assert server.running
        assert not [event for event in server.events() if event["level"] == "error"]
