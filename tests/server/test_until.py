"""`?until=`: a read up to a given offset, whose response never changes."""

from __future__ import annotations

import pytest

from tests.support.looping import for_each
from tests.support.streams import Api, check_problem

JSON = "application/json"


def offsets(api: Api, path: str, count: int) -> list[str]:
    """Append numbered messages; the offset before each, and the tail."""
    found = [api.tail(path)]
    for number in range(count):
        api.append(path, b"%d;" % number)
        found.append(api.tail(path))
    return found


def test_a_read_ends_at_until(api: Api) -> None:
    path = api.create()
    at = offsets(api, path, 5)
    for first in range(6):
        for last in range(first, 6):
            response = api.get(path, f"offset={at[first]}&until={at[last]}")
            expected = b"".join(b"%d;" % number for number in range(first, last))
            assert (response.status, response.body) == (200, expected)
            assert response.headers["stream-next-offset"] == at[last]


def test_until_from_the_beginning(api: Api) -> None:
    path = api.create()
    at = offsets(api, path, 3)
    for query in (f"until={at[2]}", f"offset=-1&until={at[2]}"):
        assert api.get(path, query).body == b"0;1;"


def test_until_can_be_inside_a_json_batch(api: Api) -> None:
    path = api.create(content_type=JSON)
    api.append(path, b"[10, 200, 3000]", content_type=JSON)
    second = "0000000000000002_0000000000000007"
    response = api.get(path, f"offset=0000000000000001_0000000000000003&until={second}")
    assert (response.status, response.body) == (200, b"[200]")
    assert api.get(path, f"offset={second}&until={second}").body == b"[]"


def test_the_response_never_changes(api: Api) -> None:
    """Neither by an append nor by closure, so a cache can keep it."""
    path = api.create()
    at = offsets(api, path, 2)
    query = f"offset={at[0]}&until={at[2]}"
    before = api.get(path, query)
    assert before.headers["cache-control"] == "public, max-age=86400, immutable"
    assert "stream-up-to-date" not in before.headers
    api.append(path, b"more")
    api.close_stream(path)
    after = api.get(path, query)
    for name in ("stream-next-offset", "etag", "cache-control", "stream-closed"):
        assert after.headers.get(name) == before.headers.get(name)
    assert after.body == before.body
    again = api.get(path, query, headers={"If-None-Match": before.headers["etag"]})
    assert again.status == 304


def test_the_response_is_not_cached_beyond_the_ttl_of_the_stream(api: Api) -> None:
    path = api.create(headers={"Stream-TTL": "100"})
    at = offsets(api, path, 1)
    control = api.get(path, f"until={at[1]}").headers["cache-control"]
    age = int(control.partition("max-age=")[2].partition(",")[0])
    assert 0 < age <= 100


def test_a_response_can_end_before_until(api: Api) -> None:
    """At the chunk limit; the reader continues from there."""
    path = api.create()
    size = 700_000
    for letter in (b"a", b"b", b"c"):
        api.append(path, letter * size)
    tail, offset, found = api.tail(path), "-1", b""
    while offset != tail:
        response = api.get(path, f"offset={offset}&until={tail}")
        found += response.body
        offset = response.headers["stream-next-offset"]
    assert found == b"a" * size + b"b" * size + b"c" * size


@for_each("live", ["sse", "long-poll"])
def test_until_is_400_for_live_reads(api: Api, live: str) -> None:
    path = api.create(body=b"x")
    query = f"offset=-1&until={api.tail(path)}&live={live}"
    check_problem(api.get(path, query), 400, "query-invalid")


def test_until_must_be_an_offset_of_the_stream_and_not_before_offset(api: Api) -> None:
    path = api.create()
    at = offsets(api, path, 3)
    for wrong, code in (
        ("", "offset-invalid"),
        ("now", "offset-invalid"),
        ("-1", "offset-invalid"),
        ("0000000000000001_0000000000000001", "offset-misaligned"),
        ("0000000000000009_0000000000000099", "offset-beyond-tail"),
    ):
        check_problem(api.get(path, f"offset=-1&until={wrong}"), 400, code)
    check_problem(api.get(path, f"offset={at[2]}&until={at[1]}"), 400, "query-invalid")
    check_problem(api.get(path, f"offset=now&until={at[1]}"), 400, "query-invalid")


# -- bytes_max -------------------------------------------------------------------------------------


@pytest.mark.every_kind
def test_a_client_can_ask_for_a_smaller_response(api: Api) -> None:
    """It ends at the last boundary within the size; the reader continues from there."""
    path = api.create(body=b"abc")
    for piece in (b"def", b"ghij"):
        api.append(path, piece)
    offset, bodies = "-1", []
    while True:
        response = api.get(path, f"offset={offset}&bytes_max=7")
        bodies.append(response.body)
        offset = response.headers["stream-next-offset"]
        if "stream-up-to-date" in response.headers:
            break
    assert bodies == [b"abcdef", b"ghij"]
    assert api.get(path, "bytes_max=1").body == b"abc"
    assert api.get(path, "bytes_max=9007199254740993").body == b"abcdefghij"


@for_each("query", ["bytes_max=", "bytes_max=0", "bytes_max=-1", "bytes_max=1.5", "bytes_max=x",
                    "bytes_max=1&bytes_max=2", "live=sse&bytes_max=1",
                    "live=long-poll&bytes_max=1"])  # fmt: skip
def test_an_invalid_size_is_400(api: Api, query: str) -> None:
    path = api.create(body=b"abc")
    check_problem(api.get(path, f"offset=-1&{query}"), 400, "query-invalid")
