"""Invalid paths, queries and offsets are rejected; unusual valid ones are accepted."""

from __future__ import annotations

import pytest

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem
from tests.wire.refusal import CONTENT, exchange, head, refused


@pytest.fixture
def path(api: Api) -> str:
    """A stream whose content must not change."""
    return api.create(body=CONTENT)


BAD_NAMES = [
    "",
    "a//b",
    "/a",
    "a/",
    ".",
    "..",
    "a/../b",
    "a/./b",
    "../../etc/passwd",
    "%2e%2e",
    "a/%2E%2e/b",
    "a%2f..%2fb",
    "%2e",
    "a%2f%2fb",
    "a\\b",
    "a%5cb",
    "..%5c..%5cb",
    "a%00b",
    "%00",
    "a%",
    "a%2",
    "a%zz",
    "a%2g",
    "%%41",
    "%ff",
    "%c0%80",
    "%ed%a0%80",
    "a%80",
    "%f4%90%80%80",
    "n" * 1025,
    "%C3%A4" * 513,
]


@for_each("method", ["GET", "PUT", "POST", "DELETE", "HEAD"])
@for_each("name", BAD_NAMES, ids=lambda name: name[:24] or "empty")
def test_an_invalid_path_is_400(api: Api, path: str, method: str, name: str) -> None:
    """For every method."""
    before = api.facts(path)
    lines = ["Content-Type: text/plain", "Content-Length: 1"] if method in ("PUT", "POST") else []
    raw = head(f"{method} /v1/stream/{name} HTTP/1.1", *lines) + (b"x" if lines else b"")
    with api.connect() as connection:
        connection.send(raw)
        response = connection.read_response(method)
        if method == "HEAD":
            assert (response.status, response.body) == (400, b"")
        else:
            check_problem(response, 400, "path-invalid")
        assert connection.request("GET", path).status == 200
    assert api.facts(path) == before


@for_each(
    "target",
    [
        "/",
        "/v1",
        "/v1/",
        "/v1/stream",
        "//v1/stream/x",
        "/-/",
        "/-/nothing",
        "*",
    ],
)
def test_an_unknown_path_is_404(api: Api, path: str, target: str) -> None:
    """With its own code, which differs from that of a missing stream."""
    refused(api, head(f"GET {target} HTTP/1.1"), 404, "route-not-found", path=path, closes=False)


@for_each("target", ["/V1/stream/x", "/v2/stream/x", "/abc", "/Bucket/s", "/a.b.c"])
def test_a_path_in_a_bucket_with_an_invalid_id_is_400(api: Api, path: str, target: str) -> None:
    """X§1.1: the first segment of any other path is a bucket id."""
    refused(api, head(f"GET {target} HTTP/1.1"), 400, "bucket-invalid", path=path, closes=False)


@for_each("byte", [0x80, 0xC3, 0xFF])
def test_raw_bytes_beyond_ascii_in_the_target_are_rejected(api: Api, path: str, byte: int) -> None:
    """A target is ASCII (RFC 9112, 3.2); other bytes must come percent-encoded."""
    raw = head(f"GET {path}{chr(byte)} HTTP/1.1")
    refused(api, raw, 400, path=path)


def test_a_fragment_in_the_target_is_rejected(api: Api, path: str) -> None:
    """RFC 9112, 3.2: it must not become part of a stream's name."""
    raw = head(f"PUT {path}-new#fragment HTTP/1.1", "Content-Length: 0")
    refused(api, raw, 400, path=path)
    assert api.head(f"{path}-new%23fragment").status == 404
    assert api.head(f"{path}-new").status == 404


@for_each(
    "name",
    [
        "a/b/c/d/e",
        "...",
        "..a",
        "a..",
        ".hidden",
        "sp%20ace",
        "%C3%A4%F0%9F%98%80",
        "%25",
        "a%2Fb",
        "a+b",
        "a=b&c",
        "a;b,c",
        "~!$'()*@:",
        "n" * 1024,
    ],
    ids=lambda name: name[:24],
)
def test_unusual_but_valid_paths_are_accepted(api: Api, name: str) -> None:
    """Any valid UTF-8 after one decoding; Location returns it as sent."""
    # The longest name cannot be extended; the others get a unique segment.
    target = f"/v1/stream/{name}" if len(name) == 1024 else f"{api.path('odd')}-{name}"
    with api.connect() as connection:
        created = connection.request("PUT", target, {"Content-Type": "text/plain"}, b"x")
        assert created.status == 201
        assert created.headers["location"] == f"http://{connection.host_header}{target}"
        assert connection.request("GET", target).body == b"x"
        assert connection.request("DELETE", target).status == 204


def test_a_path_is_decoded_once(api: Api) -> None:
    """`%2541` is the name `%41`, not the name `A`; `%41` and `A` are the same name."""
    base = api.path("once")
    api.create(path=f"{base}-A", body=b"letter")
    assert api.get(f"{base}-%41").body == b"letter"
    assert api.get(f"{base}-%2541").status == 404


@for_each(
    "query",
    [
        "offset=",
        "offset",
        "offset=0",
        "offset=-2",
        "offset=-1&offset=-1",
        "offset=now&offset=-1",
        "offset=-1&off%73et=now",
        "offset=NOW",
        "offset=+1",
        "offset=%2D2",
        "offset=abc",
        "offset=0000000000000000",
        "offset=0000000000000000_",
        "offset=_0000000000000000",
        "offset=000000000000000_0000000000000000",
        "offset=00000000000000000_0000000000000000",
        "offset=0000000000000000-0000000000000000",
        "offset=0000000000000000_000000000000000a",
        "offset=+000000000000000_0000000000000000",
        "offset=0000000000000000_0000000000000000%00",
        "offset=0000000000000000_0000000000000000%0A",
        "offset=0000000000000000_0000000000000000%20",
        "offset=%D9%A0000000000000000_0000000000000000",
        "offset=%ff",
        "offset=%zz",
        "offset=-1,now",
        "offset=../../x",
        "offset=" + "9" * 5000,
        "live=bogus",
        "live=",
        "live",
        "live=true",
        "live=SSE",
        "live=sse&live=sse&offset=-1",
        "live=long-poll",
        "live=sse",
        "live=long-poll&offset=",
        "live=sse&offset=",
        "live=sse&offset=xyz",
        "live=long-poll&offset=xyz",
        "live=long-poll&offset=-1&cursor=abc",
        "live=long-poll&offset=-1&cursor=-1",
        "live=long-poll&offset=-1&cursor=1.5",
        "live=long-poll&offset=-1&cursor=1&cursor=2",
        "live=sse&offset=-1&cursor=%00",
        "live=sse&offset=-1&cursor=%ff",
        "live=sse&offset=-1&cursor=" + "9" * 30,
        "&".join(f"x{n}=1" for n in range(1000)),
    ],
    ids=lambda query: query[:40],
)
def test_an_invalid_query_is_400(api: Api, path: str, query: str) -> None:
    """A malformed, empty or repeated parameter; the connection can be reused."""
    problem = refused(api, head(f"GET {path}?{query} HTTP/1.1"), 400, path=path, closes=False)
    assert problem["code"] in ("query-invalid", "offset-invalid")


@for_each("query", ["offset=0000000000000001_0000000000000005", "x=1&y", "&&", "=", "?"])
def test_writes_ignore_the_query(api: Api, path: str, query: str) -> None:
    """Unknown parameters (§9.1) and those of reads."""
    assert (
        api.request("POST", f"{path}?{query}", {"Content-Type": "text/plain"}, b"x").status == 204
    )


@for_each("live", ["", "&live=long-poll", "&live=sse"])
@for_each(
    ("message", "byte", "code"),
    [
        (0, 1, "offset-misaligned"),
        (1, 0, "offset-misaligned"),
        (1, 2, "offset-misaligned"),
        (0, 3, "offset-misaligned"),
        (2, 3, "offset-misaligned"),
        (1, 4, "offset-misaligned"),
        (2, 4, "offset-misaligned"),
        (1, 6, "offset-misaligned"),
        (3, 6, "offset-beyond-tail"),
        (2, 7, "offset-beyond-tail"),
        (3, 9, "offset-beyond-tail"),
        (9_999_999_999_999_999, 9_999_999_999_999_999, "offset-beyond-tail"),
    ],
)
def test_an_offset_that_the_stream_does_not_have_is_400(
    api: Api, live: str, message: int, byte: int, code: str
) -> None:
    """Misaligned, or past the tail with its own code."""
    path = api.create(body=b"abc")
    assert api.append(path, b"def") == "0000000000000002_0000000000000006"
    raw = head(f"GET {path}?offset={message:016d}_{byte:016d}{live} HTTP/1.1")
    refused(api, raw, 400, code, path=path, closes=False)


@for_each("live", ["", "&live=long-poll", "&live=sse"])
@for_each("message", [0, 1, 2, 3, 4])
@for_each("byte", range(11))
def test_the_valid_offsets_of_a_json_batch(api: Api, live: str, message: int, byte: int) -> None:
    """A batch of `1`, `22`, `3` has exactly four, in every read mode."""
    path = api.create("application/json")
    api.append(path, b"[1,22,3]", content_type="application/json")
    boundaries = {(0, 0): b"[1,22,3]", (1, 2): b"[22,3]", (2, 5): b"[3]", (3, 7): b"[]"}
    target = f"{path}?offset={message:016d}_{byte:016d}{live}"
    if (message, byte) not in boundaries:
        refused(api, head(f"GET {target} HTTP/1.1"), 400, path=path, closes=False)
    elif not live:
        assert api.get(target).body == boundaries[message, byte]


@for_each("live", ["long-poll", "sse"])
def test_the_only_valid_offset_of_an_empty_stream(api: Api, live: str) -> None:
    """It is its beginning."""
    path = api.create()
    raw = head(f"GET {path}?live={live}&offset=0000000000000000_0000000000000001 HTTP/1.1")
    refused(api, raw, 400, "offset-beyond-tail", path=path, closes=False)


def test_the_target_can_be_an_absolute_url(api: Api, path: str) -> None:
    """RFC 9112, 3.2.2."""
    raw = head(f"GET http://example.org{path}?offset=-1 HTTP/1.1")
    assert exchange(api, raw, path=path, closes=False).body == CONTENT


def test_options_asterisk(api: Api, path: str) -> None:
    """`OPTIONS *` is for the server as a whole."""
    response = exchange(api, head("OPTIONS * HTTP/1.1"), path=path, closes=False)
    assert (response.status, response.body) == (204, b"")
