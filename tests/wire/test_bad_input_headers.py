"""Invalid values of the protocol's headers are rejected and change nothing."""

from __future__ import annotations

import pytest

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem
from tests.wire.refusal import CONTENT, exchange, head, refused

BAD_TTL = [
    "",
    "-1",
    "+3600",
    "03600",
    "00",
    "3600.0",
    "3.6e3",
    "1e3",
    "0x10",
    "abc",
    "1 2",
    "1,2",
    "3600s",
    "٣",
    "9" * 17,
    "99999999999999999999999999",
    "9223372036854775808",
    "NaN",
]
BAD_EXPIRY = [
    "",
    "tomorrow",
    "0",
    "1735689600",
    "2030-01-15",
    "2030-01-15T12:00:00",
    "2030-01-15T12:00Z",
    "2030-1-15T12:00:00Z",
    "20300115T120000Z",
    "2030-W03-2T12:00:00Z",
    "2030-02-30T12:00:00Z",
    "2030-13-01T12:00:00Z",
    "2030-00-01T12:00:00Z",
    "2030-01-15T24:00:00Z",
    "2030-01-15T12:60:00Z",
    "2030-01-15T12:00:61Z",
    "2030-01-15T12:00:00+25:00",
    "2030-01-15T12:00:00+0100",
    "2030-01-15T12:00:00+01",
    "2030-01-15T12:00:00,5Z",
    "2030-01-15T12:00:00.Z",
    "0000-01-01T00:00:00Z",
    "10000-01-01T00:00:00Z",
    "Tue, 15 Jan 2030 12:00:00 GMT",
    "2030-01-15T12:00:00Z extra",
]
BAD_CONTENT_TYPE = [
    "text",
    "/plain",
    "text/",
    "text//plain",
    "text plain",
    "text/plain/extra",
    "text/pl ain",
    "text/plain, text/html",
    "text/plain charset=utf-8",
    "text/pl\xe4in",
    "(text)/plain",
    "text/" + "x" * 300,
    "text/plain; x=" + "y" * 300,
]
BAD_INTEGER = [
    "",
    "-1",
    "+1",
    "1.0",
    "1e0",
    "0x1",
    "abc",
    "1 1",
    "1, 1",
    "٣",
    "9007199254740992",
    "99999999999999999999",
    "NaN",
]


@pytest.fixture
def path(api: Api) -> str:
    """A stream whose content must not change."""
    return api.create(body=CONTENT)


def encode(text: str) -> str:
    """Text for a header, which is sent as Latin-1: other characters as bytes of UTF-8."""
    return text if text.isascii() or max(text) <= "\xff" else text.encode().decode("latin-1")


def put_refused(api: Api, path: str, status: int, code: str, *lines: str) -> None:
    """A PUT with these lines is rejected and has no effect, at a new and an existing path."""
    new = api.path()
    for name in (new, path):
        raw = head(f"PUT {name} HTTP/1.1", *map(encode, lines), "Content-Length: 1") + b"x"
        refused(api, raw, status, code, path=path, closes=False)
    assert api.head(new).status == 404


def post_refused(api: Api, path: str, status: int, code: str | None, *lines: str) -> None:
    raw = head(f"POST {path} HTTP/1.1", *map(encode, lines), "Content-Length: 1") + b"x"
    refused(api, raw, status, code, path=path, closes=False)


@for_each("value", BAD_TTL)
def test_an_invalid_stream_ttl_is_400(api: Api, path: str, value: str) -> None:
    """§5.1: a non-negative integer without leading zeros, sign, point or exponent."""
    put_refused(api, path, 400, "header-invalid", f"Stream-TTL: {value}")


def test_a_repeated_stream_ttl_is_400(api: Api, path: str) -> None:
    put_refused(api, path, 400, "header-invalid", "Stream-TTL: 60", "Stream-TTL: 60")


@for_each("value", BAD_EXPIRY)
def test_an_invalid_stream_expires_at_is_400(api: Api, path: str, value: str) -> None:
    """§5.1: it must be a valid RFC 3339 timestamp."""
    put_refused(api, path, 400, "header-invalid", f"Stream-Expires-At: {value}")


@for_each(
    "value",
    [
        "1970-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "1969-12-31T23:59:59.999Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
    ],
)
def test_an_expiry_in_the_past_is_rejected_or_expires_at_once(api: Api, value: str) -> None:
    """Also before 1970."""
    path = api.path()
    with api.connect() as connection:
        for _ in range(2):
            response = connection.request("PUT", path, {"Stream-Expires-At": value}, b"x")
            assert response.status in (201, 400)
            assert connection.request("GET", path).status == 404
        assert connection.request("PUT", path, {}, b"y").status == 201
        assert connection.request("GET", path).body == b"y"


@for_each("value", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999-23:59"])
def test_the_latest_possible_expiry(api: Api, value: str) -> None:
    """The latest times of RFC 3339 cause no overflow and no error in HEAD."""
    path = api.path()
    response = api.request("PUT", path, {"Stream-Expires-At": value}, b"x")
    if response.status == 201:
        assert api.head(path).status == 200
        assert api.get(path).body == b"x"
    else:
        check_problem(response, 400, "header-invalid")


def test_ttl_and_expires_at_exclude_each_other(api: Api, path: str) -> None:
    """§5.1: 400."""
    lines = ("Stream-TTL: 60", "Stream-Expires-At: 2099-01-01T00:00:00Z")
    put_refused(api, path, 400, "header-invalid", *lines)


@for_each("value", BAD_CONTENT_TYPE, ids=lambda value: value[:24])
def test_an_invalid_content_type_is_400(api: Api, path: str, value: str) -> None:
    """For PUT and POST; it is not a mismatch with the stream."""
    new = api.path()
    raw = head(f"PUT {new} HTTP/1.1", f"Content-Type: {value}", "Content-Length: 1") + b"x"
    problem = refused(api, raw, 400, path=path, closes=False)
    assert problem["code"] in ("content-type-invalid", "header-invalid")
    assert api.head(new).status == 404
    post_refused(api, path, 400, "content-type-invalid", f"Content-Type: {value}")


def test_a_repeated_content_type_is_400(api: Api, path: str) -> None:
    post_refused(
        api,
        path,
        400,
        "header-invalid",
        "Content-Type: text/plain",
        "Content-Type: text/plain",
    )


def test_a_body_without_a_content_type_is_400(api: Api, path: str) -> None:
    """§5.2."""
    post_refused(api, path, 400, "content-type-missing")


@for_each("value", ["text/html", "application/json", "text/plainx", "xtext/plain"])
def test_a_content_type_other_than_the_streams_is_409(api: Api, path: str, value: str) -> None:
    """§5.2."""
    post_refused(api, path, 409, "content-type-mismatch", f"Content-Type: {value}")


@for_each("header", ["Producer-Epoch", "Producer-Seq"])
@for_each("value", BAD_INTEGER)
def test_an_invalid_producer_number_is_400(api: Api, path: str, header: str, value: str) -> None:
    """§5.2.1: a non-negative integer up to 2^53-1."""
    values = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0", header: value}
    lines = [f"{name}: {text}" for name, text in values.items()]
    post_refused(api, path, 400, "header-invalid", "Content-Type: text/plain", *lines)


@for_each("missing", [1, 2, 3, 4, 5, 6])
def test_an_incomplete_set_of_producer_headers_is_400(api: Api, path: str, missing: int) -> None:
    """§5.2.1: all three or none; each of the six ways to send one or two is 400."""
    headers = ["Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 0"]
    some = [line for bit, line in enumerate(headers) if missing >> bit & 1]
    post_refused(api, path, 400, "header-invalid", "Content-Type: text/plain", *some)


@for_each("value", ["", "   ", "p" * 513])
def test_an_invalid_producer_id_is_400(api: Api, path: str, value: str) -> None:
    """§5.2.1: it must not be empty, nor longer than the limit."""
    lines = (f"Producer-Id: {value}", "Producer-Epoch: 0", "Producer-Seq: 0")
    post_refused(api, path, 400, "header-invalid", "Content-Type: text/plain", *lines)


@for_each("name", ["Producer-Id", "Producer-Epoch", "Producer-Seq", "Stream-Seq"])
def test_a_repeated_writer_header_is_400(api: Api, path: str, name: str) -> None:
    """Headers that identify the writer or its sequence."""
    values = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0", "Stream-Seq": "1"}
    lines = [f"{header}: {value}" for header, value in values.items()]
    post_refused(
        api,
        path,
        400,
        "header-invalid",
        "Content-Type: text/plain",
        *lines,
        f"{name}: {values[name]}",
    )


@for_each("value", ["", " ", "s" * 513])
def test_an_invalid_stream_seq_is_400(api: Api, path: str, value: str) -> None:
    """Empty or too long."""
    post_refused(
        api, path, 400, "header-invalid", "Content-Type: text/plain", f"Stream-Seq: {value}"
    )


@for_each("coding", ["gzip", "br", "zstd", "deflate", "x-unknown"])
def test_a_request_with_a_content_encoding_is_rejected(api: Api, path: str, coding: str) -> None:
    """415 (RFC 9110, 8.4) or 400: an encoded body must not be stored as plain."""
    before = api.facts(path)
    lines = ("Content-Type: text/plain", f"Content-Encoding: {coding}", "Content-Length: 1")
    response = exchange(api, head(f"POST {path} HTTP/1.1", *lines) + b"x", path=path)
    assert response.status in (400, 415)
    check_problem(response, response.status)
    assert api.facts(path) == before


@for_each(
    "value",
    [
        "",
        ",",
        ",,,",
        "etag",
        '"',
        '"unclosed',
        "W/",
        'W/"',
        "'x'",
        '"a" "b"',
        "\xff",
        "*x",
        '"*"',
        "x" * 9000,
    ],
    ids=lambda value: value[:24],
)
def test_an_invalid_if_none_match_does_not_match(api: Api, path: str, value: str) -> None:
    """The response is 200 with the data."""
    raw = head(f"GET {path} HTTP/1.1", f"If-None-Match: {value}")
    response = exchange(api, raw, path=path, closes=False)
    assert (response.status, response.body) == (200, CONTENT)


@for_each(
    "value",
    [
        "",
        ",",
        ";;;",
        "gzip;q=",
        "gzip;q=x",
        "gzip;q=nan",
        "gzip;q=-1",
        "gzip;q=1e309",
        "*;q=0",
        "\xff",
        "a,b;q=1;c",
        "q=1",
    ],
)
def test_an_invalid_accept_encoding_does_not_fail_a_read(api: Api, value: str) -> None:
    """Values that the server does not know are ignored."""
    path = api.create(body=b"y" * 5000)
    response = exchange(api, head(f"GET {path} HTTP/1.1", f"Accept-Encoding: {value}"), path=path)
    assert response.status == 200
    if "content-encoding" not in response.headers:
        assert response.body == b"y" * 5000


@for_each("value", ["false", "yes", "1", "", "TRUE!", "tru", "true, false", "truetrue"])
def test_stream_closed_with_another_value_is_ignored(api: Api, path: str, value: str) -> None:
    """§4.1: any value but `true`."""
    lines = ("Content-Type: text/plain", f"Stream-Closed: {value}", "Content-Length: 1")
    response = exchange(api, head(f"POST {path} HTTP/1.1", *lines) + b"x", path=path)
    assert response.status == 204
    assert "stream-closed" not in response.headers
    assert "stream-closed" not in api.head(path).headers
    # Without a body there is nothing to append, and the stream is not closed.
    raw = head(f"POST {path} HTTP/1.1", f"Stream-Closed: {value}", "Content-Length: 0")
    refused(api, raw, 400, "body-empty", path=path, closes=False)


@for_each("host", ["", "a b", "x/y", "user@x", "x:port", "\xff", "x,y"])
def test_unusual_hosts_cause_no_failure(api: Api, path: str, host: str) -> None:
    """Host is used only in Location; the request may be rejected."""
    new = api.path()
    raw = head(f"PUT {new} HTTP/1.1", "Content-Length: 0", host=host)
    response = exchange(api, raw, path=path)
    assert response.status in (201, 400)


@pytest.mark.parametrize("padding", [" ", "\t", " \t  "])
def test_white_space_around_a_value_is_not_part_of_it(api: Api, path: str, padding: str) -> None:
    """RFC 9110, 5.5: a parser removes it before and after the value."""
    headers = {
        "Content-Type": "text/plain",
        "Producer-Id": "padded",
        "Producer-Epoch": "0",
        "Producer-Seq": "0",
        "Stream-Seq": "5",
        "Stream-Closed": "true",
    }
    lines = [f"{name}:{padding}{value}{padding}" for name, value in headers.items()]
    raw = head(f"POST {path} HTTP/1.1", *lines, "Content-Length: 1") + b"x"
    response = exchange(api, raw, path=path)
    assert response.status == 200, response.body
    assert response.headers["stream-closed"] == "true"
    # The claim without the white space is a duplicate.
    again = api.post(path, b"x", headers)
    assert again.status == 204, again.body


@for_each("padding", [" ", "\t"])
def test_white_space_around_a_value_of_put(api: Api, path: str, padding: str) -> None:
    """The same for the headers of a create."""
    new = api.path()
    lines = (f"Content-Type: text/plain{padding}", f"Stream-TTL: 60{padding}")
    raw = head(f"PUT {new} HTTP/1.1", *lines, "Content-Length: 0")
    assert exchange(api, raw, path=path).status == 201
    response = api.head(new)
    assert response.headers["content-type"] == "text/plain"
    etag = api.get(path).headers["etag"]
    raw = head(f"GET {path} HTTP/1.1", f"If-None-Match: {etag}{padding}")
    assert exchange(api, raw, path=path).status == 304
