"""Requests that are not HTTP/1.1 are refused, and nothing of them reaches a stream."""

from __future__ import annotations

import pytest

from tests.support.http import Connection
from tests.support.looping import for_each
from tests.support.streams import Api, check_problem
from tests.wire.conftest import BODY_BYTES_MAX
from tests.wire.refusal import CONTENT, exchange, head, post, refused


@pytest.fixture
def path(api: Api) -> str:
    """A stream with content that must stay as it is."""
    return api.create(body=CONTENT)


@for_each(
    "length",
    [
        "-1",
        "+3",
        "0x3",
        "3.0",
        "1e1",
        "abc",
        "",
        "3 3",
        "3, 3",
        "3,3",
        "99999999999999999999999",
        "18446744073709551616",
        "18446744073709551619",
    ],
)
def test_bad_content_length(api: Api, path: str, length: str) -> None:
    """A Content-Length that is no decimal number, or overflows, is 400."""
    raw = post(path, f"Content-Length: {length}", body=b"abc")
    refused(api, raw, 400, "request-malformed", path=path, closes=True)


@for_each("second", ["3", "4"])
def test_duplicate_content_length(api: Api, path: str, second: str) -> None:
    """Two Content-Length headers are 400, even if they agree: proxies may differ about them."""
    raw = post(path, "Content-Length: 3", f"Content-Length: {second}", body=b"abcd")
    refused(api, raw, 400, "request-malformed", path=path, closes=True)


@for_each("order", [1, -1])
def test_content_length_with_transfer_encoding(api: Api, path: str, order: int) -> None:
    """Both framings in one request are the classic way to smuggle another request in."""
    lines = ["Content-Length: 3", "Transfer-Encoding: chunked"][::order]
    raw = post(path, *lines, body=b"3\r\nabc\r\n0\r\n\r\n")
    refused(api, raw, 400, "request-malformed", path=path, closes=True)


@for_each(
    "coding",
    [
        "gzip",
        "chunked, gzip",
        "chunked, chunked",
        "xchunked",
        "chunkedx",
        "identity",
        "",
        "gzip, chunked",
    ],
)
def test_transfer_coding_that_is_not_chunked(api: Api, path: str, coding: str) -> None:
    """A transfer coding that the server does not decode must not end up in the stream."""
    raw = post(path, f"Transfer-Encoding: {coding}", body=b"3\r\nabc\r\n0\r\n\r\n")
    before = api.facts(path)
    response = exchange(api, raw, path=path)
    assert response.status in (400, 501)
    check_problem(response, response.status)
    assert api.facts(path) == before


@for_each(
    "body",
    [
        b"-1\r\nabc\r\n0\r\n\r\n",
        b"zz\r\nabc\r\n0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b" 3\r\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"2\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabc0\r\n\r\n",
        b"3\nabc\n0\n\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"\r\nabc\r\n0\r\n\r\n",
        b"3;a=\x01\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\nbroken trailer\r\n\r\n",
        b"3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n",
        b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"3\r\nabc\r\n0\r\n: x\r\n\r\n",
        b"ffffffffffffffffff\r\nabc",
        b"10000000000000000\r\nabc",
        b"3\r\nabc\r\n\xff\r\n",
        b"3\r\nabc\r\n0\r\n\0\r\n",
    ],
    ids=repr,
)
def test_bad_chunked_framing(api: Api, path: str, body: bytes) -> None:
    """A chunked body whose framing breaks, wherever it breaks, appends nothing."""
    raw = post(path, "Transfer-Encoding: chunked", body=body)
    refused(api, raw, 400, "request-malformed", path=path, closes=True)


@pytest.mark.parametrize(
    "trailer",
    [
        "Stream-Closed: true",
        "Stream-Seq: 9",
        "Producer-Id: x",
        "Content-Type: application/json",
        "Host: elsewhere",
        "Connection: close",
    ],
)
def test_trailers_are_no_headers(api: Api, path: str, trailer: str) -> None:
    """RFC 9110, 6.5.1: what follows the last chunk must not be merged into the headers."""
    body = f"3\r\nabc\r\n0\r\n{trailer}\r\n\r\n".encode()
    response = exchange(api, post(path, "Transfer-Encoding: chunked", body=body), path=path)
    assert response.status == 204
    assert "stream-closed" not in api.head(path).headers
    assert api.read_all(path) == CONTENT + b"abc"
    assert api.append(path, b"!", {"Stream-Seq": "1"})


@pytest.mark.parametrize(
    "body",
    [
        b"3;name=value\r\nabc\r\n0\r\n\r\n",
        b'3;name="quoted"\r\nabc\r\n0;last\r\n\r\n',
        b"003\r\nabc\r\n000\r\n\r\n",
        b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\nX-Trailer: y\r\n\r\n",
    ],
    ids=repr,
)
def test_unusual_but_valid_chunks_are_taken(api: Api, path: str, body: bytes) -> None:
    """Chunk extensions, leading zeros and trailers are legal and change nothing of the content."""
    raw = post(path, "Transfer-Encoding: chunked", body=body)
    assert exchange(api, raw, path=path, closes=False).status == 204
    assert api.read_all(path) == CONTENT + b"abc"


@for_each(
    "lines",
    [
        ["X : space before the colon"],
        [": no name"],
        ["no colon"],
        ["X: folded", " line"],
        ["X: folded", "\tline"],
        [" X: leading space"],
        ["X: nul\0"],
        ["X\0: nul"],
        ["X(: separator in the name"],
        ["X: bell\x07"],
        ["X: delete\x7f"],
        ["X: bare\rCR"],
        ["X: bare\nY: LF"],
        ["\xe4: name beyond ASCII"],
    ],
    ids=repr,
)
def test_bad_header_lines(api: Api, path: str, lines: list[str]) -> None:
    """A header line that RFC 9112 forbids is 400, with no guess at what it might mean."""
    raw = head(f"GET {path} HTTP/1.1", *lines)
    refused(api, raw, 400, "request-malformed", path=path, closes=True)


@for_each(
    "line",
    [
        "GET {path} HTTP/1.2",
        "GET {path} HTTP/3.0",
        "GET {path} HTTP/2.0",
        "GET {path} HTTP/0.9",
        "GET {path} http/1.1",
        "GET {path} HTTP/1.1 ",
        "GET {path} HTTP/1,1",
        "GET {path} HTTP/11",
        "GET {path} HTTQ/1.1",
        "GET {path}",
        "GET {path} ",
        "GET",
        "GET  HTTP/1.1",
        "GET {path} x HTTP/1.1",
        "GET {path}\0 HTTP/1.1",
        "GET {path}\t HTTP/1.1",
        "GET {path}\x7f HTTP/1.1",
        "GET relative HTTP/1.1",
        "GET http:///nohost HTTP/1.1",
        "GET http:// HTTP/1.1",
        "get {path} HTTP/1.1",
        "G\0T {path} HTTP/1.1",
        "PRI * HTTP/2.0",
        "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        "{{}}",
    ],
    ids=repr,
)
def test_bad_request_line(api: Api, path: str, line: str) -> None:
    """A request line that is not `METHOD target HTTP/1.x` is refused; 505 is for other versions."""
    raw = head(line.format(path=path))
    before = api.facts(path)
    response = exchange(api, raw, path=path, closes=True)
    assert response.status in (400, 501, 505)
    check_problem(response, response.status)
    assert api.facts(path) == before


def test_bare_line_feeds(api: Api, path: str) -> None:
    """Lines end in CRLF; a bare LF anywhere in the head is refused."""
    raw = f"GET {path} HTTP/1.1\nHost: x\n\n".encode()
    refused(api, raw, 400, "request-malformed", path=path, closes=True)


def test_missing_host(api: Api, path: str) -> None:
    """RFC 9112, 3.2: a request of HTTP/1.1 without Host must be answered 400."""
    raw = head(f"GET {path} HTTP/1.1", host=None)
    problem = refused(api, raw, 400, "request-malformed", path=path, closes=True)
    assert "Host" in problem["detail"]


@for_each("second", ["x", "y"])
def test_two_hosts(api: Api, path: str, second: str) -> None:
    """RFC 9112, 3.2: more than one Host line must be answered 400."""
    raw = head(f"GET {path} HTTP/1.1", f"Host: {second}")
    refused(api, raw, 400, path=path)


def test_body_over_the_limit_by_content_length(api: Api, path: str) -> None:
    """The announced length is enough to refuse: 413, which names the limit, and nothing is read."""
    raw = post(path, f"Content-Length: {BODY_BYTES_MAX + 1}")
    problem = refused(api, raw, 413, "body-too-large", path=path, closes=True)
    assert str(BODY_BYTES_MAX) in problem["detail"]


def test_body_over_the_limit_in_full(api: Api, path: str) -> None:
    """A client that sends on without waiting still reads the 413 and not a reset connection."""
    size = BODY_BYTES_MAX * 8
    raw = post(path, f"Content-Length: {size}", body=b"x" * size)
    refused(api, raw, 413, "body-too-large", path=path, closes=True)


def test_body_over_the_limit_by_chunks(api: Api, path: str) -> None:
    """A chunked body is cut off where it passes the limit, whatever its chunks announce."""
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    raw = post(
        path, "Transfer-Encoding: chunked", body=chunk * (BODY_BYTES_MAX // 4096) + b"1\r\ny"
    )
    problem = refused(api, raw, 413, "body-too-large", path=path, closes=True)
    assert str(BODY_BYTES_MAX) in problem["detail"]


def test_huge_content_length(api: Api, path: str) -> None:
    """A length that no memory could hold is refused by its number."""
    raw = post(path, "Content-Length: 9000000000000000000")
    refused(api, raw, 413, "body-too-large", path=path, closes=True)


@pytest.mark.parametrize("chunked", [False, True])
def test_body_at_the_limit_is_taken(api: Api, path: str, chunked: bool) -> None:
    """The limit itself is allowed, in either framing."""
    body = b"x" * BODY_BYTES_MAX
    if chunked:
        raw = post(
            path, "Transfer-Encoding: chunked", body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        )
    else:
        raw = post(path, f"Content-Length: {len(body)}", body=body)
    assert exchange(api, raw, path=path, closes=False).status == 204
    assert api.read_all(path) == CONTENT + body


def test_body_over_the_limit_of_a_put_creates_nothing(api: Api, path: str) -> None:
    """413 on a create leaves no stream behind."""
    other = api.path()
    raw = head(f"PUT {other} HTTP/1.1", f"Content-Length: {BODY_BYTES_MAX + 1}")
    refused(api, raw, 413, "body-too-large", path=path, closes=True)
    assert api.head(other).status == 404


def test_header_block_too_large(api: Api, path: str) -> None:
    """Many headers of moderate size that are too much together: 431."""
    raw = head(f"GET {path} HTTP/1.1", *(f"X-{n}: {'v' * 1000}" for n in range(40)))
    refused(api, raw, 431, "headers-too-large", path=path, closes=True)


@for_each("part", ["name", "value"])
def test_one_header_too_large(api: Api, path: str, part: str) -> None:
    """A single header name or value of 40 KiB: 431."""
    line = "X" * 40_960 + ": v" if part == "name" else "X: " + "v" * 40_960
    refused(
        api, head(f"GET {path} HTTP/1.1", line), 431, "headers-too-large", path=path, closes=True
    )


@for_each("part", ["name", "value"])
def test_header_without_an_end(api: Api, path: str, part: str) -> None:
    """A header that never ends is answered 431 long before it could fill memory."""
    line = "X" * 200_000 if part == "name" else "X: " + "v" * 200_000
    raw = head(f"GET {path} HTTP/1.1")[:-2] + line.encode()
    refused(api, raw, 431, "headers-too-large", path=path, closes=True)


@for_each("distinct", [True, False])
def test_too_many_headers(api: Api, path: str, distinct: bool) -> None:
    """Small headers are counted too, also when all have the same name."""
    lines = (f"X-{n if distinct else 0}: v" for n in range(2000))
    refused(
        api, head(f"GET {path} HTTP/1.1", *lines), 431, "headers-too-large", path=path, closes=True
    )


def test_too_many_trailers(api: Api, path: str) -> None:
    """What follows the last chunk is limited like what comes before the first."""
    trailers = b"".join(b"X-%d: v\r\n" % n for n in range(5000))
    raw = post(path, "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n" + trailers + b"\r\n")
    refused(api, raw, 431, "headers-too-large", path=path, closes=True)


@for_each("name", [b"X", b"X-%d"])
def test_trailers_without_an_end(api: Api, path: str, name: bytes) -> None:
    """Trailers that go on and on cost neither memory nor the other clients' time."""
    start = post(path, "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n")
    with api.connect() as connection:
        try:
            connection.send(start)
            for block in range(20):
                lines = range(block * 5000, (block + 1) * 5000)
                connection.send(
                    b"".join((name % n if b"%" in name else name) + b":\r\n" for n in lines)
                )
        except (BrokenPipeError, ConnectionResetError):
            pass
        # Another client is served meanwhile; its time limit is the guard.
        assert api.read_all(path) == CONTENT
        check_problem(connection.read_response(), 431, "headers-too-large")
        assert connection.closed_by_peer()
    assert api.read_all(path) == CONTENT


@for_each("where", ["path", "query"])
@for_each("size", [10_000, 60_000, 200_000])
def test_uri_too_long(api: Api, path: str, where: str, size: int) -> None:
    """A target of more than 8 KiB is 414, wherever it is long and however long it is."""
    target = path + ("" if where == "path" else "?x=") + "a" * size
    refused(api, head(f"GET {target} HTTP/1.1"), 414, "uri-too-long", path=path, closes=True)


@for_each("method", ["PATCH", "TRACE", "PROPFIND", "QUERY", "LOCK"])
def test_method_that_streams_do_not_have(api: Api, path: str, method: str) -> None:
    """405, with Allow saying what there is."""
    before = api.facts(path)
    response = exchange(api, head(f"{method} {path} HTTP/1.1"), path=path, closes=False)
    check_problem(response, 405, "method-not-allowed")
    allowed = {name.strip() for name in response.headers["allow"].split(",")}
    assert allowed == {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"}
    assert api.facts(path) == before


@for_each("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_method_that_our_own_paths_do_not_have(api: Api, path: str, method: str) -> None:
    """`/-/health` is for reading: 405 with its own Allow."""
    raw = head(f"{method} /-/health HTTP/1.1", "Content-Length: 0")
    response = exchange(api, raw, path=path, closes=False)
    check_problem(response, 405, "method-not-allowed")
    assert {name.strip() for name in response.headers["allow"].split(",")} == {
        "GET",
        "HEAD",
        "OPTIONS",
    }


@for_each("method", ["FOO", "X-CUSTOM", "A" * 100])
def test_unknown_method(api: Api, path: str, method: str) -> None:
    """400, 405 or 501: all tell a client the truth about a method that does not exist."""
    before = api.facts(path)
    response = exchange(api, head(f"{method} {path} HTTP/1.1"), path=path)
    assert response.status in (400, 405, 501)
    check_problem(response, response.status)
    assert api.facts(path) == before


@for_each("target", ["example.org:443", "{path}", "http://x/", "*"])
def test_connect_is_refused(api: Api, path: str, target: str) -> None:
    """The server is no proxy."""
    raw = head(f"CONNECT {target.format(path=path)} HTTP/1.1")
    response = exchange(api, raw, path=path, closes=True)
    assert response.status in (400, 405, 501)
    check_problem(response, response.status)


@for_each("target", ["example.org:443", "{path}"])
def test_connect_behind_another_request_is_refused(api: Api, path: str, target: str) -> None:
    """In its turn, after the response to the append before it, and never by silence."""
    raw = post(path, "Content-Length: 3", body=b"abc")
    raw += head(f"CONNECT {target.format(path=path)} HTTP/1.1")
    with api.connect() as connection:
        connection.send(raw)
        assert connection.read_response("POST").status == 204
        assert connection.read_response().status in (400, 405, 501)
        assert connection.closed_by_peer()


UPGRADE = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAAQAAP__",
)


def test_upgrade_to_h2c_is_ignored(api: Api, path: str) -> None:
    """RFC 9110, 7.8: a server may ignore Upgrade; the response is the one of HTTP/1.1."""
    response = exchange(api, head(f"GET {path} HTTP/1.1", *UPGRADE), path=path)
    assert (response.status, response.body) == (200, CONTENT)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_upgrade_to_h2c_with_a_body(api: Api, path: str, framing: str) -> None:
    """Java's and curl's clients ask for h2c with every first request: the append must work."""
    if framing == "length":
        raw = post(path, *UPGRADE, "Content-Length: 3", body=b"abc")
    else:
        raw = post(path, *UPGRADE, "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n")
    assert exchange(api, raw, path=path).status == 204
    assert api.read_all(path) == CONTENT + b"abc"


def test_upgrades_in_a_row_are_answered_one_by_one(api: Api, path: str) -> None:
    """However many come in one packet, each is a request like any other, and so is what follows."""
    count = 700
    raw = head(f"HEAD {path} HTTP/1.1", *UPGRADE) * count
    raw += post(path, "Content-Length: 3", body=b"abc")
    with api.connect() as connection:
        connection.send(raw)
        for _ in range(count):
            assert connection.read_response("HEAD").status == 200
        assert connection.read_response("POST").status == 204
    assert api.read_all(path) == CONTENT + b"abc"


def test_an_upgrade_does_not_hide_a_repeated_header(api: Api, path: str) -> None:
    """The head is read twice; what was wrong the first time is wrong the second time."""
    lines = (*UPGRADE, "Stream-Seq: a", "Stream-Seq: b", "Content-Length: 3")
    refused(api, post(path, *lines, body=b"abc"), 400, "header-invalid", path=path, closes=False)


@pytest.mark.parametrize("chunks", [1, 2, 1023, 1024, 1025, 5000])
def test_a_body_in_many_tiny_chunks_is_one_body(api: Api, path: str, chunks: int) -> None:
    """Pieces are joined now and then while they arrive: none is lost, doubled or out of place."""
    pieces = [b"%04d" % number for number in range(chunks)]
    body = b"".join(b"4\r\n%b\r\n" % piece for piece in pieces) + b"0\r\n\r\n"
    raw = post(path, "Transfer-Encoding: chunked", body=body)
    with api.connect() as connection:
        # Twice on one connection: nothing of the first is left for the second.
        for _ in range(2):
            connection.send(raw)
            assert connection.read_response("POST").status == 204
    assert api.read_all(path) == CONTENT + b"".join(pieces) * 2


@pytest.mark.parametrize("body", [b"", b"abc"])
def test_upgrade_behind_another_request_is_answered(api: Api, path: str, body: bytes) -> None:
    """A pipelined Upgrade gets a response in its turn, with or without a body."""
    raw = post(path, "Content-Length: 3", body=b"abc")
    raw += post(path, *UPGRADE, "Stream-Closed: true", f"Content-Length: {len(body)}", body=body)
    with api.connect() as connection:
        connection.send(raw)
        assert connection.read_response("POST").status == 204
        assert connection.read_response("POST").status in (204, 501)


def test_websocket_upgrade_is_answered_as_plain_http(api: Api, path: str) -> None:
    """No protocol is ever switched."""
    lines = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    response = exchange(api, head(f"GET {path} HTTP/1.1", *lines), path=path)
    assert (response.status, response.body) == (200, CONTENT)


@for_each("sent", [0, 1, 50])
def test_cut_off_mid_body_by_length(api: Api, path: str, sent: int) -> None:
    """A client that goes away in the middle of its body has appended nothing."""
    _cut_off(api, path, post(path, "Content-Length: 100", body=b"x" * sent))


@for_each(
    "body",
    [
        b"",
        b"5",
        b"5\r\n",
        b"5\r\nab",
        b"5\r\nabcde\r\n",
        b"5\r\nabcde\r\n0",
        b"5\r\nabcde\r\n0\r\n",
    ],
    ids=repr,
)
def test_cut_off_mid_body_by_chunks(api: Api, path: str, body: bytes) -> None:
    """Even when all data is there, the append counts only with the last byte of the framing."""
    _cut_off(api, path, post(path, "Transfer-Encoding: chunked", body=body))


def _cut_off(api: Api, path: str, raw: bytes) -> None:
    before = api.facts(path)
    for leave in (Connection.close, Connection.reset):
        connection = api.connect()
        connection.send(raw)
        leave(connection)
    with api.connect() as half_closed:
        half_closed.send(raw)
        half_closed.sock.shutdown(1)
        # Either an error or nothing, but the end.
        while half_closed.sock.recv(65536):
            pass
    assert api.facts(path) == before
