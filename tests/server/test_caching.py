"""§8.1: ETags, 304, Cache-Control and cursors."""

from __future__ import annotations

import re
import time

from tests.support.looping import for_each
from tests.support.streams import Api

FULL = "public, max-age=60, stale-while-revalidate=300"
ETAG = re.compile(r'"[^"\s,]+:[0-9]{16}_[0-9]{16}:[0-9]{16}_[0-9]{16}(:c)?(:[a-z]+)?"')
# The cursor: intervals of 20 seconds since 9 October 2024.
EPOCH = 1_728_432_000


def test_etag_names_stream_start_and_end(api: Api) -> None:
    """Quoted, and different for every range and every stream."""
    paths = [api.create(body=b"abc"), api.create(body=b"abc")]
    etags = set()
    for path in paths:
        middle = api.tail(path)
        api.append(path, b"def")
        for query in ("", f"offset={middle}", f"offset={api.tail(path)}"):
            etag = api.get(path, query).headers["etag"]
            assert ETAG.fullmatch(etag)
            etags.add(etag)
    assert len(etags) == 6


def test_matching_etag_is_304_without_a_body(api: Api) -> None:
    """304 carries the headers that the 200 would have had, but no content."""
    path = api.create(body=b"abc")
    first = api.get(path)
    again = api.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    for name in ("etag", "cache-control", "stream-next-offset", "stream-up-to-date", "vary"):
        assert again.headers[name] == first.headers[name]
    assert "content-length" not in again.headers or again.headers["content-length"] != "0"


@for_each(
    "condition",
    [
        "{etag}",
        "W/{etag}",
        '"other", {etag}',
        '{etag}, "other"',
        '"a",{etag},"b"',
        '"a" , W/{etag}',
        "*",
        '"x", *',
    ],
)
def test_if_none_match_forms(api: Api, condition: str) -> None:
    """A list, weak comparison, and `*`."""
    path = api.create(body=b"abc")
    etag = api.get(path).headers["etag"]
    response = api.get(path, headers={"If-None-Match": condition.format(etag=etag)})
    assert (response.status, response.headers["etag"]) == (304, etag)


@for_each("condition", ['"other"', "", "{bare}", '"{bare}', "x{etag}", "{etag}x"])
def test_an_etag_that_does_not_match_is_200(api: Api, condition: str) -> None:
    path = api.create(body=b"abc")
    etag = api.get(path).headers["etag"]
    sent = condition.format(etag=etag, bare=etag.strip('"'))
    assert api.get(path, headers={"If-None-Match": sent}).body == b"abc"


def test_new_data_changes_the_etag(api: Api) -> None:
    path = api.create(body=b"abc")
    etag = api.get(path).headers["etag"]
    api.append(path, b"def")
    response = api.get(path, headers={"If-None-Match": etag})
    assert (response.status, response.body) == (200, b"abcdef")


@for_each("where", ["start", "tail"])
def test_closure_changes_the_etag(api: Api, where: str) -> None:
    """Even without new data: a 304 must not hide the closure."""
    path = api.create(body=b"abc")
    query = f"offset={api.tail(path)}" if where == "tail" else "offset=-1"
    open_etag = api.get(path, query).headers["etag"]
    api.close_stream(path)
    response = api.get(path, query, {"If-None-Match": open_etag})
    assert (response.status, response.headers["stream-closed"]) == (200, "true")
    closed_etag = response.headers["etag"]
    assert closed_etag == open_etag[:-1] + ':c"'
    again = api.get(path, query, {"If-None-Match": closed_etag})
    assert (again.status, again.headers["stream-closed"]) == (304, "true")


def test_closure_does_not_change_the_etag_of_a_chunk_before_the_end(short: Api) -> None:
    """Such a chunk is the same before and after closure."""
    path = short.create(body=b"a" * 80)
    short.append(path, b"b" * 80)
    before = short.get(path).headers["etag"]
    short.close_stream(path)
    assert short.get(path, headers={"If-None-Match": before}).status == 304


def test_a_full_chunk_keeps_its_etag_while_the_stream_grows(short: Api) -> None:
    """Full chunks are immutable, so caches can keep them."""
    path = short.create(body=b"a" * 80)
    short.append(path, b"b" * 80)
    before = short.get(path).headers["etag"]
    short.append(path, b"c" * 80)
    assert short.get(path, headers={"If-None-Match": before}).status == 304


def test_catch_up_and_long_poll_are_cacheable(api: Api) -> None:
    """A 200 with data, and a catch-up at the tail too."""
    path = api.create(body=b"abc")
    for query in ("", "offset=-1", "offset=-1&live=long-poll", f"offset={api.tail(path)}"):
        assert api.get(path, query).headers["cache-control"] == FULL


def test_responses_that_must_not_be_cached(short: Api) -> None:
    """HEAD, offset=now, 204, errors and all writes are no-store."""
    path = short.create(body=b"abc")
    responses = [
        short.head(path),
        short.get(path, "offset=now"),
        short.get(path, "offset=now&live=long-poll"),
        short.get(path, "offset=bad"),
        short.get(short.path()),
        short.post(path, b"x"),
        short.post(path, b""),
        short.request("PUT", path, {"Content-Type": "text/plain"}),
        short.request("DELETE", path),
    ]
    assert {response.headers["cache-control"] for response in responses} == {"no-store"}


@for_each("ttl", [1, 5, 30, 59, 60, 61, 100, 359, 360, 10_000])
def test_nothing_is_cached_beyond_the_ttl_of_a_stream(api: Api, ttl: int) -> None:
    """max-age and stale-while-revalidate together end with the TTL."""
    path = api.create(body=b"abc", headers={"Stream-TTL": str(ttl)})
    response = api.get(path)
    if response.status == 404 and ttl == 1:
        return
    match = re.fullmatch(
        r"public, max-age=([0-9]+), stale-while-revalidate=([0-9]+)",
        response.headers["cache-control"],
    )
    assert match, response.headers["cache-control"]
    age, stale = int(match[1]), int(match[2])
    assert age <= 60
    assert stale <= 300
    assert age + stale <= ttl
    # Nor much shorter than the TTL; the margin is for a busy machine.
    assert age >= min(60, ttl - 10)


def test_expires_at_limits_caching_too(api: Api) -> None:
    """The same for an absolute expiry."""
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 30))
    path = api.create(body=b"abc", headers={"Stream-Expires-At": soon})
    control = api.get(path).headers["cache-control"]
    match = re.fullmatch(r"public, max-age=([0-9]+), stale-while-revalidate=([0-9]+)", control)
    assert match
    assert int(match[1]) + int(match[2]) <= 30


# -- cursors --------------------------------------------------------------------------------------


def test_cursor_is_the_number_of_the_interval(api: Api) -> None:
    """Intervals of 20 seconds since 9 October 2024, as a decimal string."""
    path = api.create(body=b"abc")
    low = int(time.time() - EPOCH) // 20
    cursor = int(api.get(path, "offset=-1&live=long-poll").headers["stream-cursor"])
    assert low <= cursor <= int(time.time() - EPOCH) // 20


@for_each("ahead", [0, 1, 1000, 10**9])
def test_cursor_is_strictly_greater_than_the_clients(api: Api, ahead: int) -> None:
    """If the client's is the current one or later, the response's is later by a jitter."""
    path = api.create(body=b"abc")
    current = int(api.get(path, "offset=-1&live=long-poll").headers["stream-cursor"])
    sent = current + ahead
    responses = set()
    for _ in range(20):
        response = api.get(path, f"offset=-1&live=long-poll&cursor={sent}")
        cursor = int(response.headers["stream-cursor"])
        # At most an hour, 180 intervals; the current interval may have ended meanwhile.
        assert sent < cursor <= max(sent + 180, current + 2)
        responses.add(cursor)
    assert len(responses) > 1


@for_each("cursor", ["0", "1", "12345", ""])
def test_an_old_cursor_gets_the_current_one(api: Api, cursor: str) -> None:
    """No jitter is added if the client's interval is over."""
    path = api.create(body=b"abc")
    current = int(api.get(path, "offset=-1&live=long-poll").headers["stream-cursor"])
    response = api.get(path, f"offset=-1&live=long-poll&cursor={cursor}")
    assert current <= int(response.headers["stream-cursor"]) <= current + 1


def test_a_chain_of_cursors_always_increases(api: Api) -> None:
    """A client that sends each cursor back at once gets a new cache key every time."""
    path = api.create(body=b"abc")
    cursor = "999999999999990"
    for _ in range(10):
        response = api.get(path, f"offset=-1&live=long-poll&cursor={cursor}")
        assert response.status == 200, response.body
        assert int(response.headers["stream-cursor"]) > int(cursor)
        cursor = response.headers["stream-cursor"]


def test_the_204_of_a_long_poll_has_a_new_cursor(short: Api) -> None:
    """Otherwise a cache would serve the empty response repeatedly."""
    path = short.create()
    first = short.get(path, "offset=now&live=long-poll").headers["stream-cursor"]
    second = short.get(path, f"offset=now&live=long-poll&cursor={first}").headers["stream-cursor"]
    assert int(second) > int(first)
