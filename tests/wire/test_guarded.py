"""With access control: a request is rejected before its body is read (§10.1)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.access.samples import AccessToml
from tests.support.http import Connection
from tests.support.looping import for_each
from tests.support.server import ServerProcess
from tests.support.together import wait_until

LARGE = 50_000_000


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> AccessToml:
    return AccessToml(tmp_path_factory.mktemp("guarded") / "access.toml")


@pytest.fixture(scope="module")
def reader(access: AccessToml) -> str:
    """A token with read access to everything, and no write access."""
    return access.token("read:/")


@pytest.fixture(scope="module")
def server(access: AccessToml, reader: str) -> Iterator[ServerProcess]:
    with ServerProcess(access.path.parent / "data", "--access", str(access.path)) as started:
        yield started


@for_each(("who", "status"), [("nobody", 401), ("a guess", 401), ("reader", 403)])
@for_each(
    "body",
    [
        f"Content-Length: {LARGE}\r\n",
        "Content-Length: 5\r\nExpect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\n",
    ],
)
@for_each(
    "line",
    [
        "POST /v1/stream/x",
        "PUT /v1/stream/x",
        "POST /guarded/x",
        "PUT /guarded/x",
        f"PUT /guarded/x/snapshot/{0:016}_{0:016}",
        "POST /-/backup",
    ],
)
def test_a_request_is_rejected_before_its_body_is_sent(
    server: ServerProcess, reader: str, line: str, body: str, who: str, status: int
) -> None:
    """The client never sends the body; there is exactly one response."""
    token = {"nobody": "", "a guess": "guess", "reader": reader}[who]
    credentials = f"Authorization: Bearer {token}\r\n" if token else ""
    with Connection.to(server.url) as connection:
        connection.send(f"{line} HTTP/1.1\r\nHost: x\r\n{credentials}{body}\r\n".encode())
        response = connection.read_response()
        assert response.status == status
        assert (response.headers.get("www-authenticate") is not None) == (status == 401)
        assert connection.closed_by_peer()


def test_rejected_requests_have_no_effect(server: ServerProcess) -> None:
    spooled: list[Path] = list((server.data_dir / "snapshots").glob("*"))
    assert not spooled


def test_granted_requests_are_served_on_the_same_connection(
    server: ServerProcess, reader: str
) -> None:
    with Connection.to(server.url) as connection:
        for _ in range(3):
            response = connection.request(
                "GET", "/v1/stream/x", {"Authorization": f"Bearer {reader}"}
            )
            assert response.status == 404


def test_a_pipelined_request_is_rejected_before_its_body_is_sent(
    server: ServerProcess, access: AccessToml, reader: str
) -> None:
    """Behind a waiting request: otherwise the server would buffer the forbidden body."""
    operator = access.token("*:/")
    os.kill(server.pid, signal.SIGHUP)
    path = "/v1/stream/waits"
    headers = {"Authorization": f"Bearer {operator}", "Content-Type": "text/plain"}
    with Connection.to(server.url) as connection:
        wait_until(lambda: connection.request("PUT", path, headers).status in (200, 201))
    with Connection.to(server.url) as connection:
        connection.send(
            f"GET {path}?offset=-1&live=long-poll HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {reader}\r\n\r\n"
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGE}\r\n\r\n".encode()
        )
        with Connection.to(server.url) as other:
            assert other.request("POST", path, headers, b"hello").status == 204
        assert connection.read_response().body == b"hello"
        assert connection.read_response().status == 401
        assert connection.closed_by_peer()
