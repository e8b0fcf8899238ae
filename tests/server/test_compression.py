"""Responses above 1 KiB are compressed if the client accepts; each coding is a variant."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli
import zstandard

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem


def _unzstd(data: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        return reader.read()


def _unbr(data: bytes) -> bytes:
    plain: bytes = brotli.decompress(data)
    return plain


DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "br": _unbr,
    "zstd": _unzstd,
    # RFC 9110, 8.4.1.2: the zlib format, not raw deflate.
    "deflate": zlib.decompress,
}
LONG = b"All work and no play makes a dull stream. " * 200


@for_each("coding", DECODERS)
@for_each("size", [1025, 8_000, 32 << 10, 33 << 10, 300_000])
def test_each_coding_decodes_to_the_content(api: Api, coding: str, size: int) -> None:
    """With Content-Encoding and Vary, for every size."""
    content = (LONG * (size // len(LONG) + 1))[:size]
    path = api.create(body=content)
    response = api.get(path, headers={"Accept-Encoding": coding})
    assert response.status == 200
    assert response.headers["content-encoding"] == coding
    assert "accept-encoding" in response.headers["vary"].lower()
    assert len(response.body) < size
    assert DECODERS[coding](response.body) == content
    assert int(response.headers["content-length"]) == len(response.body)


@for_each("coding", DECODERS)
def test_json_arrays_are_compressed(api: Api, coding: str) -> None:
    """The decoded body is the array of an uncompressed response."""
    path = api.create("application/json", b"[" + b",".join([b'{"k":"v"}'] * 300) + b"]")
    plain = api.get(path).body
    response = api.get(path, headers={"Accept-Encoding": coding})
    assert DECODERS[coding](response.body) == plain


@for_each("size", [0, 1, 1023, 1024])
def test_responses_of_up_to_1_kib_are_not_compressed(api: Api, size: int) -> None:
    """They have Vary too, since a larger response of the same URL depends on the header."""
    path = api.create(body=b"x" * size if size else None)
    response = api.get(path, headers={"Accept-Encoding": "gzip, br, zstd, deflate"})
    assert "content-encoding" not in response.headers
    assert response.body == b"x" * size
    assert "accept-encoding" in response.headers["vary"].lower()


@for_each(
    "accept",
    [
        None,
        "",
        "identity",
        "gzip;q=0",
        "*;q=0",
        "gzip;q=0, *;q=0",
        "unknown",
        "identity;q=1, *;q=0",
        "gzip;q=0.0",
    ],
)
def test_a_response_is_not_compressed_if_the_client_does_not_accept_it(
    api: Api, accept: str | None
) -> None:
    path = api.create(body=LONG)
    headers = {} if accept is None else {"Accept-Encoding": accept}
    response = api.get(path, headers=headers)
    assert "content-encoding" not in response.headers
    assert response.body == LONG


@for_each(
    ("accept", "coding"),
    [
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("gzip;q=0.5", "gzip"),
        ("gzip; q=0.5", "gzip"),
        ("gzip;q=0.5, br;q=0.9", "br"),
        ("br;q=0.1, deflate;q=0.2", "deflate"),
        ("zstd;q=0, gzip", "gzip"),
        ("unknown, gzip;q=0.1", "gzip"),
        ("gzip, deflate", "gzip"),
        ("identity, gzip", "gzip"),
    ],
)
def test_the_clients_preference_selects_the_coding(api: Api, accept: str, coding: str) -> None:
    """By weight, ignoring case and unknown names."""
    path = api.create(body=LONG)
    response = api.get(path, headers={"Accept-Encoding": accept})
    assert response.headers["content-encoding"] == coding
    assert DECODERS[coding](response.body) == LONG


def test_a_star_accepts_any_coding(api: Api) -> None:
    """The server selects the coding that it prefers."""
    path = api.create(body=LONG)
    response = api.get(path, headers={"Accept-Encoding": "*"})
    assert DECODERS[response.headers["content-encoding"]](response.body) == LONG


def test_the_etag_differs_per_encoding(api: Api) -> None:
    """Each variant matches its own ETag only."""
    path = api.create(body=LONG)
    etags = {"": api.get(path).headers["etag"]}
    for coding in DECODERS:
        etags[coding] = api.get(path, headers={"Accept-Encoding": coding}).headers["etag"]
    assert len(set(etags.values())) == 5
    for accepted in etags:
        for known, etag in etags.items():
            headers = {"If-None-Match": etag} | ({"Accept-Encoding": accepted} if accepted else {})
            response = api.get(path, headers=headers)
            assert response.status == (304 if accepted == known else 200), (accepted, known)
            if response.status == 304:
                assert response.headers["etag"] == etag
                assert "accept-encoding" in response.headers["vary"].lower()


def test_closure_changes_the_etag_of_every_encoding(api: Api) -> None:
    """A 304 must not hide the closure."""
    path = api.create(body=LONG)
    headers = {"Accept-Encoding": "br"}
    etag = api.get(path, headers=headers).headers["etag"]
    api.close_stream(path)
    response = api.get(path, headers=headers | {"If-None-Match": etag})
    assert (response.status, response.headers["stream-closed"]) == (200, "true")


def test_event_streams_are_not_compressed(api: Api) -> None:
    """A compressor would delay events."""
    path = api.create(body=LONG, headers={"Stream-Closed": "true"})
    response = api.get(path, "offset=-1&live=sse", {"Accept-Encoding": "gzip, br, zstd"})
    assert "content-encoding" not in response.headers
    assert LONG in response.body


@for_each("waits", [False, True])
def test_long_poll_responses_are_compressed(api: Api, waits: bool) -> None:
    """Whether or not they waited."""
    path = api.create()
    offset = api.tail(path)
    if not waits:
        api.append(path, LONG)
    with api.connect() as connection:
        target = f"{path}?offset={offset}&live=long-poll"
        connection.send_request("GET", target, {"Accept-Encoding": "gzip"})
        if waits:
            api.append(path, LONG)
        response = connection.read_response()
    assert response.headers["content-encoding"] == "gzip"
    assert gzip.decompress(response.body) == LONG


def test_errors_are_not_compressed(api: Api) -> None:
    """Problem documents are small."""
    response = api.get(api.path(), headers={"Accept-Encoding": "gzip"})
    check_problem(response, 404)
    assert "content-encoding" not in response.headers


def test_pipelined_compressed_responses_keep_their_order(api: Api) -> None:
    """Large responses are compressed in a thread; small ones behind them wait."""
    large, small = api.create(body=LONG * 20), api.create(body=b"small")
    with api.connect() as connection:
        for _ in range(5):
            connection.send_request("GET", large, {"Accept-Encoding": "gzip"})
            connection.send_request("GET", small, {"Accept-Encoding": "gzip"})
        for _ in range(5):
            assert gzip.decompress(connection.read_response().body) == LONG * 20
            assert connection.read_response().body == b"small"
