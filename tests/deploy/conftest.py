"""nginx with the shipped configuration, a real server behind it, and a count of its requests."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import proxy
from benchmarks.counting_relay import CountingRelay, counting
from tests.support.http import Connection, HeaderInput, Response, request
from tests.support.server import ServerProcess
from tools.debian import find

# Below 15 s, which needs the changes that the configuration names.
POLL_S = "2"


@dataclass
class ProxiedServer:
    """A server behind nginx, and a counter of the requests between them."""

    server: ServerProcess
    wire: CountingRelay
    port: int
    directory: Path

    def connect(self, timeout: float = 20.0) -> Connection:
        return Connection("127.0.0.1", self.port, timeout)

    def request(
        self, method: str, target: str, headers: HeaderInput = (), body: bytes | None = None
    ) -> Response:
        with self.connect() as connection:
            return connection.request(method, target, headers, body)

    def create(self, target: str, body: bytes = b"", content_type: str = "text/plain") -> str:
        """Create a stream; returns its tail."""
        made = self.request("PUT", target, {"Content-Type": content_type}, body)
        assert made.status == 201, made
        return made.headers["stream-next-offset"]

    def append_at_origin(self, target: str, body: bytes) -> None:
        """Append without nginx."""
        done = request("POST", self.server.url + target, {"Content-Type": "text/plain"}, body)
        assert done.status == 204, done

    def append(self, target: str, body: bytes) -> str:
        done = self.request("POST", target, {"Content-Type": "text/plain"}, body)
        assert done.status == 204, done
        return done.headers["stream-next-offset"]

    def passed(self, pattern: str) -> list[str]:
        """The heads of matching requests that nginx passed on since the last call."""
        return [head for head in self.wire.take_heads() if re.search(pattern, head)]


@pytest.fixture(scope="session")
def nginx() -> str:
    """The path of nginx; skips the test if it is not installed."""
    found = find("nginx")
    if found is None:
        pytest.skip("nginx is not installed (on Debian: apt-get install nginx)")
    return found


@pytest.fixture(scope="module")
def behind(nginx: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedServer]:
    directory = tmp_path_factory.mktemp("behind")
    options = ("--long-poll-s", POLL_S, "--chunk-bytes", "1000", "--read-bytes-max", "1000",
               "--trusted-proxies", "127.0.0.1")  # fmt: skip
    with (
        ServerProcess(directory / "data", *options) as server,
        counting(server.port) as wire,
        proxy.running(directory / "nginx", f"127.0.0.1:{wire.port}", short_polls=True) as port,
    ):
        yield ProxiedServer(server, wire, port, directory / "nginx")
