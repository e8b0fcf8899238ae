"""deploy/nginx/tailrace.conf in a real nginx: operations pass, and only safe ones are collapsed."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import httpx
import pytest

from benchmarks import proxy
from benchmarks.blocking import Connection as Writer
from benchmarks.blocking import make_request
from benchmarks.model import SMOKE
from benchmarks.workloads import collapse
from tests.deploy.conftest import ProxiedServer
from tests.support.certificates import Authority
from tests.support.http import Connection, Response
from tests.support.server import ServerProcess
from tests.support.together import together, wait_until

STREAM = "/v1/stream/"
TEXT = {"Content-Type": "text/plain"}
LONG_POLL = "live=long-poll&offset="


@pytest.mark.usefixtures("nginx")
def test_nginx_accepts_the_configuration(tmp_path: Path) -> None:
    """With and without its changes for TLS and for short polls."""
    certificate = Authority(tmp_path).issue("nginx")
    for number, (files, short_polls) in enumerate(product((None, certificate), (False, True))):
        directory = tmp_path / f"nginx-{number}"
        changes = proxy.Changes("127.0.0.1:4437", "127.0.0.1:8080", files, short_polls)
        proxy.write(directory, changes)
        done = subprocess.run(
            [*proxy.command(directory), "-t"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "[warn]" not in done.stderr


def test_every_operation_passes(behind: ProxiedServer) -> None:
    """Statuses and headers are the server's; the client's X-Forwarded-For is not passed on."""
    path = STREAM + "all/of%20it"
    made = behind.request("PUT", path, {**TEXT, "X-Forwarded-For": "192.0.2.7"}, b"one")
    assert made.status == 201
    assert made.headers["location"] == f"http://127.0.0.1:{behind.port}{path}"
    (head,) = behind.passed("^PUT ")
    assert "\r\nX-Forwarded-For: 127.0.0.1\r\n" in head and "192.0.2.7" not in head
    assert behind.request("POST", path, TEXT, b"two").status == 204
    read = behind.request("GET", f"{path}?offset=-1")
    assert (read.status, read.body) == (200, b"onetwo")
    assert read.headers["stream-up-to-date"] == "true"
    assert read.headers["access-control-allow-origin"] == "*"
    head_response = behind.request("HEAD", path)
    assert head_response.headers["stream-next-offset"] == read.headers["stream-next-offset"]
    same = behind.request("GET", f"{path}?offset=-1", {"If-None-Match": read.headers["etag"]})
    assert same.status == 304
    assert behind.request("OPTIONS", path).status == 204
    refused = behind.request("GET", f"{path}?offset=x")
    assert refused.status == 400 and json.loads(refused.body)["code"] == "offset-invalid"
    assert behind.request("DELETE", path).status == 204
    assert behind.request("HEAD", path).status == 404


def test_paths_are_passed_on_unchanged(behind: ProxiedServer) -> None:
    """Paths that nginx could normalize to one are three streams, also in its cache."""
    behind.request("PUT", "/escapes", {})
    for number, name in enumerate(("a%25b", "a%2525b", "a%20b")):
        behind.create(f"/escapes/{name}", b"%d" % number * 1500)
        tail = behind.append(f"/escapes/{name}", b"end")
        assert tail
    for _ in range(2):
        for number, name in enumerate(("a%25b", "a%2525b", "a%20b")):
            read = behind.request("GET", f"/escapes/{name}?offset=-1")
            assert read.body == b"%d" % number * 1500


def test_a_client_reads_its_own_appends(behind: ProxiedServer) -> None:
    """Responses that end at the tail are not cached, though they could be."""
    path = STREAM + "own-writes"
    behind.create(path)
    for number in range(5):
        behind.append(path, b"%d" % number)
        read = behind.request("GET", f"{path}?offset=-1")
        assert read.body == b"01234"[: number + 1]


def test_a_response_before_the_tail_is_cached(behind: ProxiedServer) -> None:
    path = STREAM + "history"
    behind.create(path, b"x" * 1500)
    behind.append(path, b"end")
    behind.wire.take_heads()
    bodies = {behind.request("GET", f"{path}?offset=-1").body for _ in range(10)}
    assert bodies == {b"x" * 1500}
    assert len(behind.passed("^GET ")) == 1


def test_sse_events_are_not_buffered(behind: ProxiedServer) -> None:
    path = STREAM + "events"
    behind.create(path)
    with behind.connect() as connection:
        connection.send_request("GET", f"{path}?offset=-1&live=sse")
        head = connection.read_head()
        assert head.headers["content-type"] == "text/event-stream"
        pieces = connection.iter_body(head)
        seen = next(pieces)
        for text in (b"first", b"second"):
            behind.append(path, text)
            while b"data:" + text not in seen:
                seen += next(pieces)


@pytest.mark.usefixtures("nginx")
def test_sse_events_are_not_buffered_by_a_plain_proxy_pass(tmp_path: Path) -> None:
    """Two lines of configuration: the server's response itself turns buffering off."""
    port = proxy.free_port()
    path = STREAM + "plain"
    with ServerProcess(tmp_path / "data", "--engine", "memory") as server:
        location = f"location / {{ proxy_pass http://127.0.0.1:{server.port}; }}"
        text = f"server {{ listen 127.0.0.1:{port}; {location} }}"
        proxy.write_text(tmp_path / "nginx", text)
        with proxy.started(tmp_path / "nginx", port), Connection("127.0.0.1", port) as writer:
            assert writer.request("PUT", path, TEXT).status == 201
            with Connection("127.0.0.1", port) as reader:
                reader.send_request("GET", f"{path}?offset=-1&live=sse")
                head = reader.read_head()
                assert head.headers["content-type"] == "text/event-stream"
                pieces = reader.iter_body(head)
                seen = next(pieces)
                for text in ("first", "second"):
                    assert writer.request("POST", path, TEXT, text.encode()).status == 204
                    # The session ends after a minute: a test that waits for that has failed.
                    while f"data:{text}\n".encode() not in seen:
                        seen += next(pieces)
                assert seen.count(b"event: control") == 3


def test_an_upload_is_not_buffered(behind: ProxiedServer) -> None:
    """The server receives the start of a snapshot of 8 MiB before its end is sent."""
    behind.request("PUT", "/uploads", {})
    behind.create("/uploads/large")
    offset = behind.append("/uploads/large", b"message")
    behind.wire.take_heads()
    target, body = f"/uploads/large/snapshot/{offset}", bytes(range(256)) * (8 << 12)
    with behind.connect() as connection:
        head = f"PUT {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.send(head.encode() + body[:100_000])
        wait_until(lambda: bool(behind.passed("^PUT ")))
        connection.send(body[100_000:])
        assert connection.read_response("PUT").status == 204
    found = behind.request("GET", target)
    assert found.status == 200 and found.body == body
    started = behind.request("GET", "/uploads/large/bootstrap")
    assert started.status == 200 and body in started.body


def test_a_body_that_is_too_large_is_rejected_before_it_is_sent(behind: ProxiedServer) -> None:
    with behind.connect() as connection:
        head = f"PUT {STREAM}huge HTTP/1.1\r\nHost: a\r\nContent-Length: {(1 << 30) + 1}\r\n\r\n"
        connection.send(head.encode())
        assert connection.read_response("PUT").status == 413


@pytest.mark.parametrize("parameters", ["OFFSET={tail}&offset=-1", "x=1&offset=-1"])
def test_queries_that_nginx_could_misread_are_not_collapsed(
    parameters: str, behind: ProxiedServer
) -> None:
    """A response from the start must not reach a reader that waits at the tail."""
    path = STREAM + f"tricks-{len(parameters)}"
    tail = behind.create(path, b"begin")
    trick = f"{path}?live=long-poll&{parameters.format(tail=tail)}"
    assert behind.request("GET", trick).body == b"begin"
    behind.wire.take_heads()
    with behind.connect() as connection:
        connection.send_request("GET", f"{path}?{LONG_POLL}{tail}")
        # There is no cached response for it: it is passed on, and waits at the server.
        wait_until(lambda: bool(behind.passed(f"^GET {path}.live=long-poll&offset={tail} ")))


def test_requests_with_credentials_are_not_cached(behind: ProxiedServer) -> None:
    """nginx by itself would cache them for all clients."""
    path = STREAM + "private"
    behind.create(path, b"x" * 1500)
    behind.append(path, b"end")
    targets = (f"{path}?{LONG_POLL}-1", f"{path}?offset=-1")
    credentials: list[dict[str, str]] = [
        {"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}, {},
    ]  # fmt: skip
    behind.wire.take_heads()
    for target in targets:
        for headers in credentials * 2:
            assert behind.request("GET", target, headers).status == 200
        known = ["\r\nAuthorization: " in head for head in behind.passed("^GET ")]
        assert known.count(True) == 4
        # One for both without credentials, or two if the time in the key changed between them.
        assert known.count(False) in ((1, 2) if "long-poll" in target else (1,))
    for _ in range(2):
        for query in (f"{LONG_POLL}-1", "offset=-1"):
            assert behind.request("GET", f"{path}?access_token=t&{query}").status == 200
    assert len(behind.passed("^GET ")) == 4


def new_token(file: Path) -> str:
    """Add a token with all grants to an access file."""
    command = [sys.executable, "-m", "tailrace", "token", "new", "--file", str(file)]
    done = subprocess.run(
        [*command, "--name", "admin", "--grant", "*:/"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.split()[-1]


@pytest.mark.slow
@pytest.mark.usefixtures("nginx")
@pytest.mark.parametrize("by_principal", [False, True])
def test_a_cached_response_does_not_reach_other_principals(
    by_principal: bool, tmp_path: Path
) -> None:
    """With access control, for both alternatives of the configuration."""
    token = new_token(tmp_path / "access.toml")
    with (
        ServerProcess(tmp_path / "data", "--access", str(tmp_path / "access.toml")) as server,
        proxy.running(
            tmp_path / "nginx", f"127.0.0.1:{server.port}", by_principal=by_principal
        ) as port,
        Connection("127.0.0.1", port) as connection,
    ):
        known = {"Authorization": f"Bearer {token}"}
        path = STREAM + "secret"
        made = connection.request("PUT", path, {**TEXT, **known}, b"x" * 5000)
        assert made.status == 201
        for query in (f"{LONG_POLL}-1", "offset=-1"):
            target = f"{path}?{query}"
            for _ in range(2):
                read = connection.request("GET", target, known)
                assert read.status == 200 and read.headers["cache-control"].startswith("private")
                assert connection.request("GET", target).status == 401
                other = {"Authorization": f"Bearer {token}x"}
                assert connection.request("GET", target, other).status == 401
                in_url = connection.request("GET", f"{target}&access_token={token}")
                assert in_url.status == 200
    kept = [file for file in (tmp_path / "nginx").rglob("*") if file.is_file()]
    found = [file.name for file in kept if token.encode() in file.read_bytes()]
    # If requests of one principal are shared, its credentials are in the keys of the cache.
    assert bool(found) == by_principal


def test_the_requests_of_one_principal_can_be_shared(behind: ProxiedServer, tmp_path: Path) -> None:
    """The alternative of the configuration: shared among requests of one principal only."""
    path = STREAM + "principals"
    behind.create(path, b"x")
    origin = f"127.0.0.1:{behind.wire.port}"
    with proxy.running(tmp_path / "nginx", origin, by_principal=True) as port:
        behind.wire.take_heads()
        for name in ("a", "b", "a", "b", "a", "b"):
            with Connection("127.0.0.1", port) as connection:
                headers = {"Authorization": f"Bearer {name}"}
                read = connection.request("GET", f"{path}?{LONG_POLL}-1", headers)
                assert read.status == 200
        passed = [re.findall("Bearer .", head)[0] for head in behind.passed("^GET ")]
    # Once each, or twice if the time in the key changed meanwhile.
    assert sorted(set(passed)) == ["Bearer a", "Bearer b"] and len(passed) < 6


def test_a_query_is_not_logged(behind: ProxiedServer) -> None:
    behind.create(STREAM + "logged")
    behind.request("GET", f"{STREAM}logged?offset=-1&access_token=secret-of-mine")
    log = behind.directory / "tailrace.log"
    wait_until(lambda: f'"GET {STREAM}logged" 200' in log.read_text())
    assert "secret-of-mine" not in log.read_text()


def test_encodings_are_cached_separately(behind: ProxiedServer) -> None:
    """A client that does not accept gzip never gets it."""
    path = STREAM + "encodings"
    behind.create(path, b"x" * 5000)
    for _ in range(2):
        for accepts, coding in (("gzip, br", "gzip"), ("gzip;q=0", None), ("identity", None)):
            found = behind.request("GET", f"{path}?{LONG_POLL}-1", {"Accept-Encoding": accepts})
            assert found.headers.get("content-encoding") == coding
            assert coding or found.body == b"x" * 5000


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_hundred_readers_cost_as_much_as_a_few(behind: ProxiedServer) -> None:
    """
    Goal: readers that wait at one offset cost the server one request, with new data and without.

    Method: 200 readers long-poll through nginx during three messages, a time-out of the polls, and
    a last message. Requests that nginx passes on are counted. On a busy machine readers poll again
    over several seconds, and each second is another key: so the limit is a twentieth of the
    responses, where a handful is expected.
    """
    sizes = replace(SMOKE, collapse_readers=200, collapse_messages=3, collapse_quiet_seconds=3)
    with Writer("127.0.0.1", behind.server.port) as writer:
        writer.expect(201, make_request("PUT", collapse.PATH, content_type="text/plain"))
        before = behind.wire.requests
        outcome = collapse.follow(writer, behind.wire, behind.port, sizes)
    assert [check for check in outcome.checks if not check.right] == []
    responses = outcome.metrics["responses"]
    # Three messages, at least one time-out, and the last message.
    assert responses >= 5 * 200
    assert behind.wire.requests - before <= responses / 20


def followed(connection: Connection, target: str) -> Response:
    """Poll again until the stream has ended."""
    while True:
        response = connection.read_response()
        if response.status != 204 or "stream-closed" in response.headers:
            return response
        connection.send_request("GET", target)


def test_the_end_of_a_stream_reaches_all_waiting_readers(behind: ProxiedServer) -> None:
    """By closing and by deleting it."""
    for ending, status in (("POST", 204), ("DELETE", 404)):
        path = STREAM + f"ends-{ending}"
        target = f"{path}?{LONG_POLL}{behind.create(path)}"
        connections = [behind.connect(60) for _ in range(20)]
        for connection in connections:
            connection.send_request("GET", target)
        wait_until(lambda: bool(behind.passed("^GET .*long-poll")))
        headers = {"Stream-Closed": "true"} if ending == "POST" else {}
        assert behind.request(ending, path, headers).status == 204
        responses = together([partial(followed, each, target) for each in connections])
        assert {response.status for response in responses} == {status}
        if ending == "POST":
            found = {response.headers.get("stream-closed") for response in responses}
            assert found == {"true"}
        for connection in connections:
            connection.close()


@pytest.mark.usefixtures("nginx")
def test_tls_and_http_2(behind: ProxiedServer, tmp_path: Path) -> None:
    """With the TLS lines of the file: a real handshake, HTTP/2, and `Location` is https."""
    authority = Authority(tmp_path)
    files, context = authority.issue("nginx"), authority.client_context()
    with (
        proxy.running(tmp_path / "nginx", f"127.0.0.1:{behind.server.port}", files) as port,
        httpx.Client(http2=True, verify=context, trust_env=False) as client,
    ):
        url = f"https://localhost:{port}{STREAM}secure"
        made = client.put(url, headers=TEXT)
        assert (made.status_code, made.http_version) == (201, "HTTP/2")
        assert made.headers["location"] == url
        with client.stream("GET", f"{url}?offset=-1&live=sse") as events:
            pieces = events.iter_text()
            seen = next(pieces)
            behind.append_at_origin(STREAM + "secure", b"hello")
            while "data:hello" not in seen:
                seen += next(pieces)
