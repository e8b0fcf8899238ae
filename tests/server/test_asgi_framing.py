"""What ASGI servers let through, and the app must not store."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from tests.support.http import Connection, Response
from tests.support.looping import for_each
from tests.support.server import AsgiServerProcess
from tests.support.streams import Api, check_problem

CONTENT = b"what was there"
H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")


class UvicornH11(AsgiServerProcess):
    """uvicorn with the other of its two parsers."""

    def _command(self, port: int) -> list[str]:
        return [*super()._command(port), "--http", "h11"]


class Hypercorn(AsgiServerProcess):
    def _command(self, port: int) -> list[str]:
        return [
            *(sys.executable, "-m", "hypercorn", "tests.support.asgi_app:app"),
            *("--bind", f"127.0.0.1:{port}", "--workers", "0"),
        ]

    def _port_in(self, line: str) -> int | None:
        match = re.search(r"Running on http://127\.0\.0\.1:(\d+)", line)
        return int(match[1]) if match else None


SERVERS: dict[str, type[AsgiServerProcess]] = {
    "httptools": AsgiServerProcess,
    "h11": UvicornH11,
    "hypercorn": Hypercorn,
}


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AsgiServerProcess]:
    data_dir = tmp_path_factory.mktemp(request.param)
    with SERVERS[request.param](data_dir, "--long-poll-s", "60", "--sse-s", "60") as started:
        yield started


@pytest.fixture
def api(server: AsgiServerProcess) -> Iterator[Api]:
    api = Api(server)
    yield api
    api.close()
    assert server.running


def request(method: str, path: str, *lines: str, body: bytes = b"", host: str = "h") -> bytes:
    lines = (f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host else []), *lines)
    return "\r\n".join((*lines, "", "")).encode() + body


def exchange(api: Api, *pieces: bytes) -> Response:
    """Send raw bytes, in several packets, and read one response."""
    with api.connect() as connection:
        for piece in pieces:
            connection.send(piece)
        return connection.read_response()


def unchanged(api: Api, path: str, *pieces: bytes, status: int = 400) -> None:
    """The request is refused, by the hosting server or by the app, and changes nothing."""
    before = api.facts(path)
    response = exchange(api, *pieces)
    assert response.status == status, (response.status, response.body)
    assert api.facts(path) == before


# -- bodies ----------------------------------------------------------------------------------------


def upgrades(server: AsgiServerProcess) -> bool:
    """Whether the hosting server accepts the upgrade to HTTP/2, and so reads the body."""
    return isinstance(server, Hypercorn)


@for_each("separate", [False, True])
def test_a_body_that_was_lost_is_refused(api: Api, separate: bool) -> None:
    """curl --http2 and Java's HttpClient send such an Upgrade with their first request."""
    if upgrades(api.server):  # type: ignore[arg-type]
        return
    new, old = api.path(), api.create(body=CONTENT)
    lines = ("Content-Type: text/plain", *H2C, "Content-Length: 5")
    for method, path, extra in (
        ("PUT", new, ()),
        ("POST", old, ()),
        ("POST", old, ("Stream-Closed: true",)),
    ):
        before = api.facts(path)
        raw = request(method, path, *lines, *extra)
        response = exchange(api, raw, b"hello") if separate else exchange(api, raw + b"hello")
        if response.status != 400:
            # The server does pass on the body: then all of it is stored.
            assert response.status in (201, 204)
            assert api.get(path).body == (before[-1] if before[0] != 404 else b"") + b"hello"  # type: ignore[operator]
            continue
        problem = check_problem(response, 400, "body-incomplete")
        assert "without its Upgrade header" in problem["detail"]
        assert api.facts(path) == before


def test_a_snapshot_that_was_lost_is_refused(api: Api) -> None:
    if upgrades(api.server):  # type: ignore[arg-type]
        return
    stream = api.in_bucket(api.new_bucket(), "s")
    api.create(path=stream)
    tail = api.append(stream, b"x")
    path = f"{stream}/snapshot/{tail}"
    lines = ("Content-Type: text/plain", *H2C, "Content-Length: 5")
    if exchange(api, request("PUT", path, *lines, body=b"hello")).status == 204:
        assert api.get(path).body == b"hello"
    else:
        check_problem(api.get(f"{stream}/snapshot"), 404, "snapshot-not-found")


def test_a_chunked_body_that_was_lost_is_refused(api: Api) -> None:
    """It has no length that could be compared."""
    if upgrades(api.server):  # type: ignore[arg-type]
        return
    path = api.path()
    lines = ("Content-Type: text/plain", *H2C, "Transfer-Encoding: chunked")
    response = exchange(api, request("PUT", path, *lines, body=b"5\r\nhello\r\n0\r\n\r\n"))
    if response.status == 201:
        assert api.get(path).body == b"hello"
    else:
        check_problem(response, 400, "body-incomplete")
        assert api.head(path).status == 404


def test_reads_and_closes_with_an_upgrade_are_served(api: Api) -> None:
    """They have no body to lose."""
    if upgrades(api.server):  # type: ignore[arg-type]
        return
    path = api.create(body=CONTENT)
    assert exchange(api, request("GET", path, *H2C)).body == CONTENT
    lines = (*H2C, "Content-Length: 0", "Stream-Closed: true")
    assert exchange(api, request("POST", path, *lines)).status == 204
    assert api.head(path).headers["stream-closed"] == "true"


@for_each("framing", ["Content-Length: 9", "Transfer-Encoding: chunked"])
def test_a_request_that_is_cut_off_changes_nothing(api: Api, framing: str) -> None:
    path = api.create(body=CONTENT)
    before = api.facts(path)
    body = b"5\r\nhello\r\n" if "chunked" in framing else b"hello"
    with api.connect() as connection:
        connection.send(
            request("POST", path, "Content-Type: text/plain", "Stream-Closed: true", framing)
        )
        connection.send(body)
    assert api.facts(path) == before


# -- headers ---------------------------------------------------------------------------------------


@for_each("separate", [False, True])
def test_trailers_are_not_headers(api: Api, separate: bool) -> None:
    """RFC 9110, 6.5.1: whether they arrive with the head or after it."""
    for trailer in ("Stream-Closed: true", "Stream-Seq: 9", "Producer-Id: x", "Host: other"):
        path = api.create(body=CONTENT)
        head = request("POST", path, "Content-Type: text/plain", "Transfer-Encoding: chunked")
        rest = f"3\r\nabc\r\n0\r\n{trailer}\r\n\r\n".encode()
        response = exchange(api, head, rest) if separate else exchange(api, head + rest)
        assert response.status == 204, (trailer, response.body)
        assert "stream-closed" not in api.head(path).headers
        assert api.append(path, b"!", {"Stream-Seq": "1"})
        assert api.read_all(path) == CONTENT + b"abc!"


def test_a_trailer_does_not_give_a_type(api: Api) -> None:
    path = api.create("application/json")
    head = request("POST", path, "Transfer-Encoding: chunked")
    rest = b"1\r\n1\r\n0\r\nContent-Type: application/json\r\n\r\n"
    check_problem(exchange(api, head + rest), 400, "content-type-missing")


@for_each("coding", ["gzip, chunked", "chunked, gzip", "gzip", "identity", "chunked, chunked"])
def test_other_transfer_codings_are_refused(api: Api, coding: str) -> None:
    path = api.create(body=CONTENT)
    lines = ("Content-Type: text/plain", f"Transfer-Encoding: {coding}")
    before = api.facts(path)
    response = exchange(api, request("POST", path, *lines, body=b"3\r\nabc\r\n0\r\n\r\n"))
    assert response.status in (400, 501)
    assert api.facts(path) == before


def test_two_lengths_are_refused(api: Api) -> None:
    """Length and chunks at once are the classic form of request smuggling."""
    path = api.create(body=CONTENT)
    text = "Content-Type: text/plain"
    both = (text, "Content-Length: 3", "Transfer-Encoding: chunked")
    unchanged(api, path, request("POST", path, *both, body=b"3\r\nabc\r\n0\r\n\r\n"))
    twice = (text, "Content-Length: 3", "Content-Length: 3")
    if not isinstance(api.server, UvicornH11 | Hypercorn):
        # h11 passes equal ones on as one.
        unchanged(api, path, request("POST", path, *twice, body=b"abc"))


@for_each("lines", [(), ("Host: a", "Host: b"), ("Host: a", "Host: a")])
def test_a_request_has_one_host(api: Api, lines: tuple[str, ...]) -> None:
    path = api.create(body=CONTENT)
    text = ("Content-Type: text/plain", "Content-Length: 3")
    unchanged(api, path, request("POST", path, *lines, *text, body=b"abc", host=""))


def test_sizes_are_limited(api: Api) -> None:
    path = api.create(body=CONTENT)
    text = ("Content-Type: text/plain", "Content-Length: 3")
    many = [f"X-{n}: v" for n in range(200)]
    large = [f"X-{n}: {'v' * 1000}" for n in range(40)]
    for lines in (many, large):
        before = api.facts(path)
        raw = request("POST", path, *text, *lines, body=b"abc")
        # h11 has smaller limits of its own.
        assert exchange(api, raw).status in (400, 431)
        assert api.facts(path) == before
    assert exchange(api, request("GET", f"{path}?x={'y' * 9000}")).status in (400, 414)


def test_a_connection_is_usable_after_a_refusal_or_closed(api: Api) -> None:
    path = api.create(body=CONTENT)
    with Connection("127.0.0.1", api.server.port) as connection:
        connection.send(request("GET", path, "Host: b", host="a"))
        response = connection.read_response()
        assert response.status == 400
        if response.headers.get("connection") != "close":
            assert connection.request("GET", path).body == CONTENT
