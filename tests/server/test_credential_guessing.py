"""Rejected credentials are counted per address, for every form of request and transport."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.access.samples import AccessToml
from tests.support.http import Connection
from tests.support.looping import for_each
from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess

BURST = 4
LIMITS = f"""
[client]
requests_per_s = 0.001
requests_burst = {BURST}
"""
GUESS = "Authorization: Bearer guess\r\n"
BODY = "Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"
CHUNKED = "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
REQUESTS = {
    "read": f"GET PATH/x HTTP/1.1\r\nHost: x\r\n{GUESS}\r\n",
    "append": f"POST PATH/x HTTP/1.1\r\nHost: x\r\n{GUESS}{BODY}",
    "chunks": f"POST PATH/x HTTP/1.1\r\nHost: x\r\n{GUESS}{CHUNKED}",
    "nothing": "GET PATH/x HTTP/1.1\r\nHost: x\r\n\r\n",
    "bad name": f"GET PATH/a//b HTTP/1.1\r\nHost: x\r\n{GUESS}\r\n",
}


@pytest.fixture(
    scope="module",
    params=[ServerProcess, pytest.param(AsgiServerProcess, marks=pytest.mark.slow)],
    ids=["wire", "asgi"],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BaseServerProcess]:
    tmp_path = tmp_path_factory.mktemp("guessing")
    access = AccessToml(tmp_path / "access.toml")
    limits = tmp_path / "limits.toml"
    limits.write_text(LIMITS)
    options = (
        *("--engine", "memory", "--trusted-proxies", "127.0.0.1"),
        *("--access", str(access.path), "--limits", str(limits)),
    )
    with request.param(tmp_path / "data", *options) as started:
        yield started


@for_each("kind", REQUESTS)
def test_too_many_rejected_credentials_are_429(server: BaseServerProcess, kind: str) -> None:
    # Each kind of request comes from its own address.
    address = f"Host: x\r\nX-Forwarded-For: 192.0.2.{list(REQUESTS).index(kind)}\r\n"
    text = REQUESTS[kind].replace("Host: x\r\n", address)
    raw = text.replace("PATH", f"{server.base_path}/v1/stream").encode()
    found = []
    for _ in range(BURST + 3):
        with Connection("127.0.0.1", server.port) as connection:
            connection.send(raw)
            found.append(connection.read_response().status)
    assert set(found[:BURST]) <= {400, 401}
    assert found[BURST:] == [429] * 3
    # The health check needs no credentials and is not limited.
    with Connection("127.0.0.1", server.port) as connection:
        assert connection.request("GET", f"{server.base_path}/-/health").status == 200
