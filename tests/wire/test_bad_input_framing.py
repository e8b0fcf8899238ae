"""Requests that are not valid HTTP/1.1 are rejected, and change no stream."""

from __future__ import annotations

import pytest

from tests.support.http import Connection
from tests.support.looping import for_each
from tests.support.streams import Api, check_problem
from tests.wire.conftest import BODY_BYTES_MAX
from tests.wire.refusal import CONTENT, exchange, head, post, refused


@pytest.fixture
def path(api: Api) -> str:
    """A stream whose content must not change."""
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
def test_an_invalid_content_length_is_400(api: Api, path: str, length: str) -> None:
    """Not a decimal number, or an overflow."""
    raw = post(path, f"Content-Length: {length}", body=b"abc")
    refused(api, raw, 400, "request-malformed", path=path, closes=True)


@for_each("second", ["3", "4"])
def test_two_content_lengths_are_400(api: Api, path: str, second: str) -> None:
    """Even if they are equal: proxies may treat them differently."""
    raw = post(path, "Content-Length: 3", f"Content-Length: {second}", body=b"abcd")
    refused(api, raw, 400, "request-malformed", path=path, closes=True)


@for_each("order", [1, -1])
def test_content_length_with_transfer_encoding_is_400(api: Api, path: str, order: int) -> None:
    """The classic form of request smuggling."""
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
def test_a_transfer_coding_other_than_chunked_is_rejected(api: Api, path: str, coding: str) -> None:
    """The server does not decode it, so the body must not be stored."""
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
def test_invalid_chunked_framing_appends_nothing(api: Api, path: str, body: bytes) -> None:
    """Wherever in the body the framing is invalid."""
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
def test_trailers_are_not_headers(api: Api, path: str, trailer: str) -> None:
    """RFC 9110, 6.5.1: trailers must not be merged into the headers."""
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
def test_unusual_but_valid_chunks_are_accepted(api: Api, path: str, body: bytes) -> None:
    """Chunk extensions, leading zeros and trailers do not change the content."""
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
def test_invalid_header_lines_are_400(api: Api, path: str, lines: list[str]) -> None:
    """Lines that RFC 9112 forbids."""
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
def test_an_invalid_request_line_is_rejected(api: Api, path: str, line: str) -> None:
    """It must be `METHOD target HTTP/1.x`; other versions are 505."""
    raw = head(line.format(path=path))
    before = api.facts(path)
    response = exchange(api, raw, path=path, closes=True)
    assert response.status in (400, 501, 505)
    check_problem(response, response.status)
    assert api.facts(path) == before


def test_bare_line_feeds_are_rejected(api: Api, path: str) -> None:
    """Anywhere in the head: lines end in CRLF."""
    raw = f"GET {path} HTTP/1.1\nHost: x\n\n".encode()
    refused(api, raw, 400, "request-malformed", path=path, closes=True)


def test_a_missing_host_is_400(api: Api, path: str) -> None:
    """RFC 9112, 3.2."""
    raw = head(f"GET {path} HTTP/1.1", host=None)
    problem = refused(api, raw, 400, "request-malformed", path=path, closes=True)
    assert "Host" in problem["detail"]


@for_each("second", ["x", "y"])
def test_two_hosts_are_400(api: Api, path: str, second: str) -> None:
    """RFC 9112, 3.2."""
    raw = head(f"GET {path} HTTP/1.1", f"Host: {second}")
    refused(api, raw, 400, path=path)


def test_a_content_length_over_the_limit_is_413(api: Api, path: str) -> None:
    """Before the body is sent; the detail has the limit."""
    raw = post(path, f"Content-Length: {BODY_BYTES_MAX + 1}")
    problem = refused(api, raw, 413, "body-too-large", path=path, closes=True)
    assert str(BODY_BYTES_MAX) in problem["detail"]


def test_a_client_that_sends_a_body_over_the_limit_can_read_the_413(api: Api, path: str) -> None:
    """The client sends the whole body without waiting, and gets no connection reset."""
    size = BODY_BYTES_MAX * 8
    raw = post(path, f"Content-Length: {size}", body=b"x" * size)
    refused(api, raw, 413, "body-too-large", path=path, closes=True)


def test_a_chunked_body_over_the_limit_is_413(api: Api, path: str) -> None:
    """As soon as it exceeds the limit, whatever its chunk sizes."""
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    raw = post(
        path, "Transfer-Encoding: chunked", body=chunk * (BODY_BYTES_MAX // 4096) + b"1\r\ny"
    )
    problem = refused(api, raw, 413, "body-too-large", path=path, closes=True)
    assert str(BODY_BYTES_MAX) in problem["detail"]


def test_a_huge_content_length_is_413(api: Api, path: str) -> None:
    raw = post(path, "Content-Length: 9000000000000000000")
    refused(api, raw, 413, "body-too-large", path=path, closes=True)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_the_limit_is_accepted(api: Api, path: str, chunked: bool) -> None:
    """In both framings."""
    body = b"x" * BODY_BYTES_MAX
    if chunked:
        raw = post(
            path, "Transfer-Encoding: chunked", body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        )
    else:
        raw = post(path, f"Content-Length: {len(body)}", body=body)
    assert exchange(api, raw, path=path, closes=False).status == 204
    assert api.read_all(path) == CONTENT + body


def test_a_put_with_a_body_over_the_limit_creates_nothing(api: Api, path: str) -> None:
    other = api.path()
    raw = head(f"PUT {other} HTTP/1.1", f"Content-Length: {BODY_BYTES_MAX + 1}")
    refused(api, raw, 413, "body-too-large", path=path, closes=True)
    assert api.head(other).status == 404


def test_headers_that_are_too_large_together_are_431(api: Api, path: str) -> None:
    """Many headers of moderate size."""
    raw = head(f"GET {path} HTTP/1.1", *(f"X-{n}: {'v' * 1000}" for n in range(40)))
    refused(api, raw, 431, "headers-too-large", path=path, closes=True)


@for_each("part", ["name", "value"])
def test_a_header_that_is_too_large_is_431(api: Api, path: str, part: str) -> None:
    """A name or value of 40 KiB."""
    line = "X" * 40_960 + ": v" if part == "name" else "X: " + "v" * 40_960
    refused(
        api, head(f"GET {path} HTTP/1.1", line), 431, "headers-too-large", path=path, closes=True
    )


@for_each("part", ["name", "value"])
def test_a_header_without_an_end_is_431(api: Api, path: str, part: str) -> None:
    """Long before it could fill the memory."""
    line = "X" * 200_000 if part == "name" else "X: " + "v" * 200_000
    raw = head(f"GET {path} HTTP/1.1")[:-2] + line.encode()
    refused(api, raw, 431, "headers-too-large", path=path, closes=True)


@for_each("distinct", [True, False])
def test_too_many_headers_are_431(api: Api, path: str, distinct: bool) -> None:
    """The number of headers is limited too, also if all have the same name."""
    lines = (f"X-{n if distinct else 0}: v" for n in range(2000))
    refused(
        api, head(f"GET {path} HTTP/1.1", *lines), 431, "headers-too-large", path=path, closes=True
    )


def test_too_many_trailers_are_rejected(api: Api, path: str) -> None:
    """Trailers have the same limit as headers."""
    trailers = b"".join(b"X-%d: v\r\n" % n for n in range(5000))
    raw = post(path, "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n" + trailers + b"\r\n")
    refused(api, raw, 431, "headers-too-large", path=path, closes=True)


@for_each("name", [b"X", b"X-%d"])
def test_endless_trailers_are_rejected(api: Api, path: str, name: bytes) -> None:
    """They use little memory and do not block other clients."""
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
        # Another client is served meanwhile, within the timeout of its connection.
        assert api.read_all(path) == CONTENT
        check_problem(connection.read_response(), 431, "headers-too-large")
        assert connection.closed_by_peer()
    assert api.read_all(path) == CONTENT


@for_each("where", ["path", "query"])
@for_each("size", [10_000, 60_000, 200_000])
def test_a_target_that_is_too_long_is_414(api: Api, path: str, where: str, size: int) -> None:
    """More than 8 KiB, in the path or in the query."""
    target = path + ("" if where == "path" else "?x=") + "a" * size
    refused(api, head(f"GET {target} HTTP/1.1"), 414, "uri-too-long", path=path, closes=True)


@for_each("method", ["PATCH", "TRACE", "PROPFIND", "QUERY", "LOCK"])
def test_a_method_that_streams_do_not_support_is_405(api: Api, path: str, method: str) -> None:
    """With Allow."""
    before = api.facts(path)
    response = exchange(api, head(f"{method} {path} HTTP/1.1"), path=path, closes=False)
    check_problem(response, 405, "method-not-allowed")
    allowed = {name.strip() for name in response.headers["allow"].split(",")}
    assert allowed == {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"}
    assert api.facts(path) == before


@for_each("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_method_that_the_health_check_does_not_support_is_405(
    api: Api, path: str, method: str
) -> None:
    """With its own Allow."""
    raw = head(f"{method} /-/health HTTP/1.1", "Content-Length: 0")
    response = exchange(api, raw, path=path, closes=False)
    check_problem(response, 405, "method-not-allowed")
    assert {name.strip() for name in response.headers["allow"].split(",")} == {
        "GET",
        "HEAD",
        "OPTIONS",
    }


@for_each("method", ["FOO", "X-CUSTOM", "A" * 100])
def test_an_unknown_method_is_rejected(api: Api, path: str, method: str) -> None:
    """400, 405 and 501 are all correct."""
    before = api.facts(path)
    response = exchange(api, head(f"{method} {path} HTTP/1.1"), path=path)
    assert response.status in (400, 405, 501)
    check_problem(response, response.status)
    assert api.facts(path) == before


@for_each("target", ["example.org:443", "{path}", "http://x/", "*"])
def test_connect_is_rejected(api: Api, path: str, target: str) -> None:
    """The server is not a proxy."""
    raw = head(f"CONNECT {target.format(path=path)} HTTP/1.1")
    response = exchange(api, raw, path=path, closes=True)
    assert response.status in (400, 405, 501)
    check_problem(response, response.status)


@for_each("target", ["example.org:443", "{path}"])
def test_a_pipelined_connect_is_rejected(api: Api, path: str, target: str) -> None:
    """With a response, after the response to the append before it."""
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
    """RFC 9110, 7.8: a server may ignore Upgrade and respond in HTTP/1.1."""
    response = exchange(api, head(f"GET {path} HTTP/1.1", *UPGRADE), path=path)
    assert (response.status, response.body) == (200, CONTENT)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_append_with_upgrade_to_h2c_is_stored(api: Api, path: str, framing: str) -> None:
    """Java's and curl's clients send the header with their first request."""
    if framing == "length":
        raw = post(path, *UPGRADE, "Content-Length: 3", body=b"abc")
    else:
        raw = post(path, *UPGRADE, "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n")
    assert exchange(api, raw, path=path).status == 204
    assert api.read_all(path) == CONTENT + b"abc"


def test_pipelined_upgrades_each_get_a_response(api: Api, path: str) -> None:
    """Each is an ordinary request, and so is the request after them."""
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
    """The head is parsed twice; both times the header is rejected."""
    lines = (*UPGRADE, "Stream-Seq: a", "Stream-Seq: b", "Content-Length: 3")
    refused(api, post(path, *lines, body=b"abc"), 400, "header-invalid", path=path, closes=False)


@pytest.mark.parametrize("chunks", [1, 2, 1023, 1024, 1025, 5000])
def test_a_body_in_many_tiny_chunks_is_one_body(api: Api, path: str, chunks: int) -> None:
    """Pieces are joined in groups as they arrive: none is lost, repeated or reordered."""
    pieces = [b"%04d" % number for number in range(chunks)]
    body = b"".join(b"4\r\n%b\r\n" % piece for piece in pieces) + b"0\r\n\r\n"
    raw = post(path, "Transfer-Encoding: chunked", body=body)
    with api.connect() as connection:
        # Twice on one connection: the second body has no bytes of the first.
        for _ in range(2):
            connection.send(raw)
            assert connection.read_response("POST").status == 204
    assert api.read_all(path) == CONTENT + b"".join(pieces) * 2


@pytest.mark.parametrize("body", [b"", b"abc"])
def test_a_pipelined_upgrade_gets_a_response(api: Api, path: str, body: bytes) -> None:
    """In order, with or without a body."""
    raw = post(path, "Content-Length: 3", body=b"abc")
    raw += post(path, *UPGRADE, "Stream-Closed: true", f"Content-Length: {len(body)}", body=body)
    with api.connect() as connection:
        connection.send(raw)
        assert connection.read_response("POST").status == 204
        assert connection.read_response("POST").status in (204, 501)


def test_a_websocket_upgrade_is_ignored(api: Api, path: str) -> None:
    """The response is plain HTTP."""
    lines = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    response = exchange(api, head(f"GET {path} HTTP/1.1", *lines), path=path)
    assert (response.status, response.body) == (200, CONTENT)


@for_each("sent", [0, 1, 50])
def test_a_body_with_a_length_that_is_cut_off_appends_nothing(
    api: Api, path: str, sent: int
) -> None:
    """The client disconnects during its body."""
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
def test_a_chunked_body_that_is_cut_off_appends_nothing(api: Api, path: str, body: bytes) -> None:
    """Even if only the last byte of the framing is missing."""
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
        # Either an error or nothing, and then the end of the connection.
        while half_closed.sock.recv(65536):
            pass
    assert api.facts(path) == before
