"""
Limits over real sockets: which requests are rejected, how, and which are not.

Rates are so low, or bursts so large, that no test depends on the speed of the machine. Clients
differ by X-Forwarded-For, as behind a trusted proxy.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from tailrace.server.guard.access.token_editor import add_token
from tests.support.http import Connection, Response
from tests.support.reading import SseReader
from tests.support.server import AsgiServerProcess, BaseServerProcess, ServerProcess
from tests.support.streams import Api

PATIENCE_S = 20.0
LIMITS = """
[[exception]]
match = "198.51.100.0/26"
requests_per_s = 0.01
requests_burst = 3

[[exception]]
match = "198.51.100.64/26"
append_bytes_per_s = 0.1
append_bytes_burst = 10

[[exception]]
match = "203.0.113.3"
waiters_max = 2

[[exception]]
match = "203.0.113.4"
append_bytes_per_s = 50
append_bytes_burst = 10

[[exception]]
match = "2001:db8:1::/48"
requests_per_s = 0.01

[[bucket]]
match = "bytes-*"
bytes_max = 20

[[bucket]]
match = "few-*"
streams_max = 2

[[bucket]]
match = "slow-*"
messages_per_s = 0.01
messages_burst = 5
"""
OPTIONS = ("--trusted-proxies", "127.0.0.1", "--long-poll-s", "60", "--waiters-max", "9")


@pytest.fixture(
    scope="module",
    params=[ServerProcess, pytest.param(AsgiServerProcess, marks=pytest.mark.slow)],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BaseServerProcess]:
    directory = tmp_path_factory.mktemp("limits")
    (directory / "limits.toml").write_text(LIMITS)
    options = (*OPTIONS, "--limits", str(directory / "limits.toml"))
    with request.param(directory / "data", *options) as server:
        yield server


class Client(Api):
    """One client behind the proxy."""

    def __init__(self, server: BaseServerProcess, address: str) -> None:
        super().__init__(server)
        self.address = address

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        sent = {"X-Forwarded-For": f"192.0.2.66, {self.address}", **(headers or {})}
        return super().request(method, target, sent, body)


NewClient = Callable[[str], Client]


@pytest.fixture
def client(server: BaseServerProcess) -> Iterator[NewClient]:
    with ExitStack() as stack:

        def made(address: str) -> Client:
            made = Client(server, address)
            stack.callback(made.close)
            return made

        yield made


def refusal(response: Response) -> tuple[int, str]:
    body = json.loads(response.body)
    assert response.headers["content-type"] == "application/problem+json"
    assert body["status"] == response.status
    return response.status, body["code"]


def retry_after(response: Response) -> int:
    return int(response.headers["retry-after"])


def new_bucket(api: Api, kind: str) -> str:
    bucket = f"{kind}-{api.path().rpartition('-')[2]}"
    assert api.request("PUT", f"{api.server.base_path}/{bucket}").status == 201
    return bucket


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def is_accepted(api: Api, path: str, body: bytes) -> bool:
    return api.post(path, body).status in (200, 204)


# -- rates -------------------------------------------------------------------------------------


def test_guesses_at_tokens_of_leases_are_counted(client: NewClient) -> None:
    api = client("198.51.100.33")
    path = f"{api.server.base_path}/v1/stream/__ds/subscriptions/s/callback"
    statuses = [api.request("POST", path, {"Authorization": "Bearer x"}).status for _ in range(5)]
    assert statuses == [404, 404, 404, 429, 429]


def test_too_many_requests_are_429_with_retry_after(client: NewClient) -> None:
    limited, other = client("198.51.100.1"), client("203.0.113.9")
    path = other.create()
    assert [limited.head(path).status for _ in range(3)] == [200] * 3
    response = limited.get(path, "offset=-1")
    assert refusal(response) == (429, "request-rate-exceeded")
    assert 1 <= retry_after(response) <= 100
    assert response.headers["cache-control"] == "no-store"
    # Rejected before any effect, and a HEAD without a body.
    assert limited.post(path, b"x").status == 429
    head = limited.head(path)
    assert (head.status, head.body) == (429, b"")
    assert other.read_all(path) == b""


def test_other_clients_are_not_limited(client: NewClient) -> None:
    limited, other = client("198.51.100.2"), client("203.0.113.9")
    path = other.create()
    until(lambda: limited.head(path).status == 429)
    for _ in range(50):
        assert other.head(path).status == 200


def test_ipv6_clients_are_counted_by_their_64(client: NewClient) -> None:
    path = client("203.0.113.9").create()
    number = os.getpid() & 0xFFFF
    first = client(f"2001:db8:1:{number:x}::1")
    assert first.head(path).status == 200
    assert client(f"2001:db8:1:{number:x}:ffff::2").head(path).status == 429
    assert client(f"2001:db8:1:{number ^ 1:x}::1").head(path).status == 200


def test_too_many_bytes_are_429_and_nothing_is_appended(client: NewClient) -> None:
    """Only appended bytes count; a large append passes once and leaves a debt."""
    limited, other = client("198.51.100.65"), client("203.0.113.9")
    path = other.create()
    limited.append(path, b"0123456789ABCDEF")
    response = limited.post(path, b"0")
    assert refusal(response) == (429, "append-rate-exceeded")
    # A debt of 6 bytes and 1 more, at 0.1 bytes per second.
    assert 1 <= retry_after(response) <= 70
    create = limited.request("PUT", limited.path(), {"Content-Type": "text/plain"}, b"content")
    assert refusal(create) == (429, "append-rate-exceeded")
    assert limited.read_all(path) == b"0123456789ABCDEF"
    other.append(path, b"x" * 1000)
    assert limited.request("DELETE", path).status == 204


def test_a_client_that_retries_gets_everything_appended(client: NewClient) -> None:
    """Appends larger than the burst, each retried until it is accepted."""
    limited = client("203.0.113.4")
    path = limited.create()
    sent = b""
    for number in range(4):
        piece = b"%d" % number * 13
        until(partial(is_accepted, limited, path, piece))
        sent += piece
    assert limited.read_all(path) == sent


# -- quotas ------------------------------------------------------------------------------------


def test_a_full_bucket_is_507_until_streams_are_deleted(client: NewClient) -> None:
    api = client("203.0.113.9")
    bucket = new_bucket(api, "bytes")
    path = api.create(path=api.in_bucket(bucket, "a"), body=b"0123456789")
    api.append(path, b"01234567")
    response = api.post(path, b"012")
    assert refusal(response) == (507, "bucket-bytes-exceeded")
    assert "20 bytes" in json.loads(response.body)["detail"]
    api.append(path, b"01")
    describe = api.get(api.in_bucket(bucket, "").rstrip("/"))
    assert json.loads(describe.body)["bytes"] == 20
    # Closing and deleting are not growth.
    api.close_stream(path)
    assert api.request("DELETE", path).status == 204
    assert json.loads(api.get(api.in_bucket(bucket, "").rstrip("/")).body)["bytes"] == 0
    api.create(path=api.in_bucket(bucket, "b"), body=b"x" * 20)


def test_a_snapshot_frees_bytes(client: NewClient) -> None:
    api = client("203.0.113.9")
    bucket = new_bucket(api, "bytes")
    path = api.create(path=api.in_bucket(bucket, "a"), body=b"x" * 20)
    tail = api.tail(path)
    large = api.request("PUT", f"{path}/snapshot/{tail}", {"Content-Type": "a/b"}, b"s" * 21)
    assert refusal(large) == (507, "bucket-bytes-exceeded")
    assert api.get(f"{path}/snapshot").status == 404
    small = api.request("PUT", f"{path}/snapshot/{tail}", {"Content-Type": "a/b"}, b"s" * 5)
    assert small.status in (200, 201, 204)
    api.append(path, b"x" * 15)
    assert api.post(path, b"x").status == 507


def test_a_retry_of_a_stored_append_is_never_rejected(client: NewClient) -> None:
    api = client("203.0.113.9")
    bucket = new_bucket(api, "bytes")
    path = api.create(path=api.in_bucket(bucket, "a"))
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    assert api.post(path, b"x" * 20, producer).status == 200
    assert api.post(path, b"x" * 20, producer).status == 204
    assert api.post(path, b"x", {**producer, "Producer-Seq": "1"}).status == 507


def test_too_many_streams_are_507(client: NewClient) -> None:
    api = client("203.0.113.9")
    bucket = new_bucket(api, "few")
    first = api.create(path=api.in_bucket(bucket, "a"))
    api.create(path=api.in_bucket(bucket, "b"))
    third = api.in_bucket(bucket, "c")
    response = api.request("PUT", third, {"Content-Type": "text/plain"})
    assert refusal(response) == (507, "bucket-streams-exceeded")
    assert api.request("PUT", first, {"Content-Type": "text/plain"}).status == 200
    assert api.request("DELETE", first).status == 204
    api.create(path=third)


def test_too_many_messages_are_429(client: NewClient) -> None:
    """Counted over all clients; in JSON mode an element is a message."""
    api, other = client("203.0.113.8"), client("203.0.113.9")
    bucket = new_bucket(api, "slow")
    path = api.create("application/json", path=api.in_bucket(bucket, "a"))
    api.append(path, b"[1,2,3]", content_type="application/json")
    other.append(path, b"[4,5]", content_type="application/json")
    response = api.post(path, b"6", content_type="application/json")
    assert refusal(response) == (429, "bucket-rate-exceeded")
    assert 1 <= retry_after(response) <= 100
    another = new_bucket(api, "slow")
    api.create(path=api.in_bucket(another, "a"), body=b"x")


# -- waiters and connections ---------------------------------------------------------------------


class Reader:
    """A live reader that holds its connection."""

    def __init__(self, server: BaseServerProcess, address: str, path: str) -> None:
        self.connection = Connection("127.0.0.1", server.port, PATIENCE_S)
        target = f"{path}?offset=now&live=sse"
        self.connection.send_request("GET", target, {"X-Forwarded-For": address})

    def close(self) -> None:
        self.connection.close()


Join = Callable[[str], Reader]


@pytest.fixture
def join(server: BaseServerProcess, client: NewClient) -> Iterator[Join]:
    """Start a waiting reader. Slots of closed readers are free when the server notices it."""
    path = client("203.0.113.9").create()
    with ExitStack() as stack:

        def joined(address: str) -> Reader:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                reader = Reader(server, address, path)
                if reader.connection.read_head().status == 200:
                    stack.callback(reader.close)
                    return reader
                reader.close()
                assert time.monotonic() < deadline, "no slot became free"
                time.sleep(0.01)

        yield joined


def test_one_client_cannot_take_all_waiters(client: NewClient, join: Join) -> None:
    """Of nine slots one client gets eight and a new client the ninth, until readers leave."""
    path = client("203.0.113.9").create()
    greedy = [join("203.0.113.20") for _ in range(8)]
    for live in ("sse", "long-poll"):
        response = client("203.0.113.20").get(path, f"offset=now&live={live}")
        assert refusal(response) == (503, "too-many-waiters")
        assert retry_after(response) == 1
    # Reads that do not wait are not limited.
    assert client("203.0.113.20").get(path, "offset=-1").status == 200
    join("203.0.113.21")
    response = client("203.0.113.22").get(path, "offset=now&live=long-poll")
    assert refusal(response) == (503, "too-many-waiters")
    for item in greedy[:4]:
        item.close()
    for address in ("203.0.113.22", "203.0.113.23", "203.0.113.21"):
        join(address)


def test_the_file_limits_the_waiters_of_a_client(client: NewClient, join: Join) -> None:
    path = client("203.0.113.9").create(body=b"content")
    for _ in range(2):
        join("203.0.113.3")
    limited = client("203.0.113.3")
    response = limited.get(path, "offset=now&live=long-poll")
    assert refusal(response) == (429, "client-waiters-exceeded")
    assert retry_after(response) == 1
    # A long-poll with data does not wait.
    assert limited.get(path, "offset=-1&live=long-poll").body == b"content"
    join("203.0.113.24")


def test_connections_are_shared_by_address(tmp_path: Path) -> None:
    """Of 18, one address gets 16; another address still gets one."""
    with ServerProcess(tmp_path, "--connections-max", "18") as server, ExitStack() as stack:

        def status(source: str) -> int:
            address = ("127.0.0.1", server.port)
            raw = socket.create_connection(address, PATIENCE_S, source_address=(source, 0))
            stack.enter_context(raw)
            raw.sendall(b"GET /-/health HTTP/1.1\r\nHost: test\r\n\r\n")
            return int(raw.recv(4096).split()[1])

        assert [status("127.0.0.1") for _ in range(17)] == [200] * 16 + [503]
        assert status("127.0.0.2") == 200


def test_a_snapshot_that_exceeds_the_quota_is_rejected_before_its_body(tmp_path: Path) -> None:
    """Only by our own transport: an ASGI server passes the request on with its body."""
    (tmp_path / "limits.toml").write_text(LIMITS)
    with ServerProcess(tmp_path / "data", "--limits", str(tmp_path / "limits.toml")) as server:
        api = Api(server)
        path = api.create(path=api.in_bucket(new_bucket(api, "bytes"), "a"), body=b"x" * 20)
        target = f"{path}/snapshot/{api.tail(path)}"
        with api.connect() as connection:
            headers = {"Content-Type": "a/b", "Content-Length": "90000000"}
            connection.send_request("PUT", target, headers)
            assert refusal(connection.read_response("PUT")) == (507, "bucket-bytes-exceeded")
        api.close()


# -- principals ----------------------------------------------------------------------------------


def test_principals_are_counted_separately(tmp_path: Path) -> None:
    """Three tokens from one address; one of them is an exception."""
    access, limits = tmp_path / "access.toml", tmp_path / "limits.toml"
    tokens = [add_token(access, name, ["*:/"])[1] for name in ("first", "second", "third")]
    public = tokens[2].split("_")[1]
    limits.write_text(
        "[client]\nrequests_per_s = 0.01\nrequests_burst = 2\n"
        f'[[exception]]\nmatch = "token:{public[:6]}*"\n'
    )
    options = ("--access", str(access), "--limits", str(limits))
    with ServerProcess(tmp_path / "data", *options) as server:
        api = Api(server)

        def statuses(token: str, count: int) -> list[int]:
            headers = {"Authorization": f"Bearer {token}"}
            return [api.request("HEAD", "/v1/stream/none", headers).status for _ in range(count)]

        assert statuses(tokens[0], 3) == [404, 404, 429]
        assert statuses(tokens[1], 3) == [404, 404, 429]
        assert statuses(tokens[2], 5) == [404] * 5
        # Invalid tokens are counted by address.
        assert statuses("trt_guess_guess", 3) == [401, 401, 429]
        assert statuses(tokens[2], 1) == [404]
        api.close()


# -- the file ------------------------------------------------------------------------------------


def test_sighup_applies_new_limits_and_an_invalid_file_changes_nothing(tmp_path: Path) -> None:
    """Open connections and a live reader stay."""
    file = tmp_path / "limits.toml"
    file.write_text("")
    with ServerProcess(tmp_path / "data", "--limits", str(file)) as server:
        api = Api(server)
        path = api.create()

        def reload(text: str, event: str) -> None:
            lines = len(server.events())
            file.write_text(text)
            os.kill(server.pid, signal.SIGHUP)
            until(lambda: any(item["event"] == event for item in server.events()[lines:]))

        with api.connect() as connection:
            reader = SseReader(connection, path)
            assert reader.head.status == 200
            reload("[client]\nrequests_per_s = 0.01\nrequests_burst = 2", "reloaded")
            assert [api.head(path).status for _ in range(3)] == [200, 200, 429]
            reload("[client]\nrequests_per_s = 'x'", "reloaded")
            (error,) = (item for item in server.events() if item["level"] == "error")
            assert "[client]: requests_per_s must be a number" in error["error"]
            assert api.head(path).status == 429
            reload("[[bucket]]\nmatch = '*'\nstreams_max = 0", "reloaded")
            assert api.head(path).status == 200
            api.append(path, b"news")
            assert "news" in [event.data for event in islice(reader.events(), 2)]
            bucket = api.new_bucket()
            response = api.request("PUT", api.in_bucket(bucket, "s"), {"Content-Type": "a/b"})
            assert refusal(response) == (507, "bucket-streams-exceeded")
            reload("", "reloaded")
            api.create(path=api.in_bucket(bucket, "s"))
        api.close()


def test_a_server_with_an_invalid_file_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text("[client]\nrequest_per_s = 3")
    command = [
        *(sys.executable, "-m", "tailrace", "serve", "--port", "0", "--engine", "memory"),
        *("--limits", str(tmp_path / "limits.toml")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "[client]: unknown key 'request_per_s'" in done.stderr
    assert "Traceback" not in done.stderr
