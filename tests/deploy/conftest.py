"""nginx as it is shipped, before a real server, with a count of what comes through."""

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

# Below 15: nginx gets the changes that its file names for that.
POLL_S = "2"


@dataclass
class Behind:
    """A server, nginx before it, and the wire between them."""

    server: ServerProcess
    wire: CountingRelay
    port: int
    place: Path

    def connect(self, timeout: float = 20.0) -> Connection:
        return Connection("127.0.0.1", self.port, timeout)

    def request(
        self, method: str, target: str, headers: HeaderInput = (), body: bytes | None = None
    ) -> Response:
        with self.connect() as connection:
            return connection.request(method, target, headers, body)

    def create(self, target: str, body: bytes = b"", content_type: str = "text/plain") -> str:
        """A stream; its tail."""
        made = self.request("PUT", target, {"Content-Type": content_type}, body)
        assert made.status == 201, made
        return made.headers["stream-next-offset"]

    def append_at_origin(self, target: str, body: bytes) -> None:
        """Past nginx."""
        done = request("POST", self.server.url + target, {"Content-Type": "text/plain"}, body)
        assert done.status == 204, done

    def append(self, target: str, body: bytes) -> str:
        done = self.request("POST", target, {"Content-Type": "text/plain"}, body)
        assert done.status == 204, done
        return done.headers["stream-next-offset"]

    def passed(self, pattern: str) -> list[str]:
        """The heads of requests that came through since the last look, if they match."""
        return [head for head in self.wire.take_heads() if re.search(pattern, head)]


@pytest.fixture(scope="session")
def nginx() -> str:
    """The program, or a skipped test."""
    found = find("nginx")
    if found is None:
        pytest.skip("nginx is not installed, and tools/debian.py could not install it")
    return found


@pytest.fixture(scope="module")
def behind(nginx: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    place = tmp_path_factory.mktemp("behind")
    options = ("--long-poll-s", POLL_S, "--chunk-bytes", "1000", "--trusted-proxies", "127.0.0.1")
    with (
        ServerProcess(place / "data", *options) as server,
        counting(server.port) as wire,
        proxy.running(place / "nginx", f"127.0.0.1:{wire.port}", short_polls=True) as port,
    ):
        yield Behind(server, wire, port, place / "nginx")
