"""deploy/nginx/tailrace.conf in a real nginx: everything passes, readers are collapsed, no more."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest

from benchmarks import proxy
from benchmarks.blocking import Connection as Writer
from benchmarks.blocking import make_request
from benchmarks.model import SMOKE
from benchmarks.workloads import collapse
from tests.deploy.conftest import Behind
from tests.support.certificates import Authority
from tests.support.http import Connection, Response
from tests.support.server import ServerProcess
from tests.support.together import together, wait_until

STREAM = "/v1/stream/"
TEXT = {"Content-Type": "text/plain"}
LONG_POLL = "live=long-poll&offset="


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("short_polls", [False, True])
@pytest.mark.usefixtures("nginx")
def test_nginx_takes_the_file(tls: bool, short_polls: bool, tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("nginx") if tls else None
    changes = proxy.Changes("127.0.0.1:4437", "127.0.0.1:8080", files, short_polls)
    proxy.write(tmp_path / "nginx", changes)
    done = subprocess.run(
        [*proxy.command(tmp_path / "nginx"), "-t"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr


def test_every_operation_passes(behind: Behind) -> None:
    """Statuses and headers are the server's; what a client says about itself is not passed on."""
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
    looked = behind.request("HEAD", path)
    assert looked.headers["stream-next-offset"] == read.headers["stream-next-offset"]
    same = behind.request("GET", f"{path}?offset=-1", {"If-None-Match": read.headers["etag"]})
    assert same.status == 304
    assert behind.request("OPTIONS", path).status == 204
    refused = behind.request("GET", f"{path}?offset=x")
    assert refused.status == 400 and json.loads(refused.body)["code"] == "offset-invalid"
    assert behind.request("DELETE", path).status == 204
    assert behind.request("HEAD", path).status == 404


def test_a_path_is_passed_as_it_came(behind: Behind) -> None:
    """What nginx would take for the same are three streams, also in its cache."""
    behind.request("PUT", "/escapes", {})
    for number, name in enumerate(("a%25b", "a%2525b", "a%20b")):
        behind.create(f"/escapes/{name}", b"%d" % number * 1500)
        tail = behind.append(f"/escapes/{name}", b"end")
        assert tail
    for _ in range(2):
        for number, name in enumerate(("a%25b", "a%2525b", "a%20b")):
            read = behind.request("GET", f"/escapes/{name}?offset=-1")
            assert read.body == b"%d" % number * 1500


def test_who_has_appended_finds_it(behind: Behind) -> None:
    """Answers that end at the tail are not kept, though they may be."""
    path = STREAM + "own-writes"
    behind.create(path)
    for number in range(5):
        behind.append(path, b"%d" % number)
        read = behind.request("GET", f"{path}?offset=-1")
        assert read.body == b"01234"[: number + 1]


def test_an_answer_before_the_tail_is_kept(behind: Behind) -> None:
    path = STREAM + "history"
    behind.create(path, b"x" * 1500)
    behind.append(path, b"end")
    behind.wire.take_heads()
    bodies = {behind.request("GET", f"{path}?offset=-1").body for _ in range(10)}
    assert bodies == {b"x" * 1500}
    assert len(behind.passed("^GET ")) == 1


def test_events_come_while_the_answer_goes_on(behind: Behind) -> None:
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


def test_a_body_is_passed_while_it_comes(behind: Behind) -> None:
    """The server has the beginning of an upload before its end is sent; a snapshot of 8 MiB."""
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


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(behind: Behind) -> None:
    with behind.connect() as connection:
        head = f"PUT {STREAM}huge HTTP/1.1\r\nHost: a\r\nContent-Length: {(1 << 30) + 1}\r\n\r\n"
        connection.send(head.encode())
        assert connection.read_response("PUT").status == 413


@pytest.mark.parametrize("parameters", ["OFFSET={tail}&offset=-1", "x=1&offset=-1"])
def test_what_nginx_reads_otherwise_than_the_server_is_not_shared(
    parameters: str, behind: Behind
) -> None:
    """An answer from the beginning must not reach who asks for what comes after the tail."""
    path = STREAM + f"tricks-{len(parameters)}"
    tail = behind.create(path, b"begin")
    trick = f"{path}?live=long-poll&{parameters.format(tail=tail)}"
    assert behind.request("GET", trick).body == b"begin"
    behind.wire.take_heads()
    with behind.connect() as connection:
        connection.send_request("GET", f"{path}?{LONG_POLL}{tail}")
        # Nobody else's answer is there for it: it asks the server, and waits there.
        wait_until(lambda: bool(behind.passed(f"^GET {path}.live=long-poll&offset={tail} ")))


def test_requests_with_credentials_are_not_shared(behind: Behind) -> None:
    """nginx would keep their answers for everybody: each goes to the server."""
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
        # One for both without, or two if the seconds of a long-poll's key changed between them.
        assert known.count(False) in ((1, 2) if "long-poll" in target else (1,))
    for _ in range(2):
        for query in (f"{LONG_POLL}-1", "offset=-1"):
            assert behind.request("GET", f"{path}?access_token=t&{query}").status == 200
    assert len(behind.passed("^GET ")) == 4


def new_token(file: Path) -> str:
    """A token that may do everything, in a file of tokens."""
    command = [sys.executable, "-m", "tailrace", "token", "new", "--file", str(file)]
    done = subprocess.run(
        [*command, "--name", "admin", "--grant", "*:/"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.split()[-1]


@pytest.mark.usefixtures("nginx")
@pytest.mark.parametrize("by_principal", [False, True])
def test_nobody_gets_what_another_may_read(by_principal: bool, tmp_path: Path) -> None:
    """Access control at the server, and either choice in the file: one has read, others ask."""
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
    # Where requests of one principal are shared, its credentials are in the keys, as the file says.
    assert bool(found) == by_principal


def test_the_requests_of_one_principal_can_be_shared(behind: Behind, tmp_path: Path) -> None:
    """The second choice that the file names: among those of one principal, and no others."""
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
    # Once each; twice, if the tens of seconds of the key changed meanwhile.
    assert sorted(set(passed)) == ["Bearer a", "Bearer b"] and len(passed) < 6


def test_a_query_is_not_logged(behind: Behind) -> None:
    behind.create(STREAM + "logged")
    behind.request("GET", f"{STREAM}logged?offset=-1&access_token=secret-of-mine")
    log = behind.place / "tailrace.log"
    wait_until(lambda: f'"GET {STREAM}logged" 200' in log.read_text())
    assert "secret-of-mine" not in log.read_text()


def test_encodings_are_not_mixed_up(behind: Behind) -> None:
    """Who did not ask for gzip does not get it, whoever asked first."""
    path = STREAM + "encodings"
    behind.create(path, b"x" * 5000)
    for _ in range(2):
        for accepts, coding in (("gzip, br", "gzip"), ("gzip;q=0", None), ("identity", None)):
            found = behind.request("GET", f"{path}?{LONG_POLL}-1", {"Accept-Encoding": accepts})
            assert found.headers.get("content-encoding") == coding
            assert coding or found.body == b"x" * 5000


@pytest.mark.timeout(240)
def test_two_hundred_readers_cost_as_much_as_a_few(behind: Behind) -> None:
    """
    Goal: readers that wait for the same cost the server one request, with news and without.

    Method: 200 readers long-poll through nginx; three messages, then silence over a time-out of
    polls, then a last message. What came through is counted on the wire. On a machine that has
    other things to do readers come back spread over several seconds, and each second is a
    request: so the limit is a twentieth of the answers, where a handful is what there should be.
    """
    sizes = replace(SMOKE, collapse_readers=200, collapse_messages=3, collapse_quiet_seconds=3)
    with Writer("127.0.0.1", behind.server.port) as writer:
        writer.expect(201, make_request("PUT", collapse.PATH, content_type="text/plain"))
        before = behind.wire.requests
        outcome = collapse.follow(writer, behind.wire, behind.port, sizes)
    assert [check for check in outcome.checks if not check.right] == []
    answers = outcome.metrics["responses"]
    # Three messages, a time-out at least, and the last one.
    assert answers >= 5 * 200
    assert behind.wire.requests - before <= answers / 20


def followed(connection: Connection, target: str) -> Response:
    """Poll again until the stream has ended."""
    while True:
        answer = connection.read_response()
        if answer.status != 204 or "stream-closed" in answer.headers:
            return answer
        connection.send_request("GET", target)


def test_readers_of_what_is_closed_or_deleted_are_told(behind: Behind) -> None:
    """The end of a stream reaches all who wait."""
    for ending, status in (("POST", 204), ("DELETE", 404)):
        path = STREAM + f"ends-{ending}"
        target = f"{path}?{LONG_POLL}{behind.create(path)}"
        connections = [behind.connect(60) for _ in range(20)]
        for connection in connections:
            connection.send_request("GET", target)
        wait_until(lambda: bool(behind.passed("^GET .*long-poll")))
        headers = {"Stream-Closed": "true"} if ending == "POST" else {}
        assert behind.request(ending, path, headers).status == 204
        answers = together([partial(followed, each, target) for each in connections])
        assert {answer.status for answer in answers} == {status}
        if ending == "POST":
            assert {answer.headers.get("stream-closed") for answer in answers} == {"true"}
        for connection in connections:
            connection.close()


@pytest.mark.usefixtures("nginx")
def test_tls_and_http_2(behind: Behind, tmp_path: Path) -> None:
    """With the lines for TLS: a real handshake, HTTP/2, and Location says https."""
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
