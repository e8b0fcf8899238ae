"""
Grants: a location covers exactly the names below it, in every spelling.

Method: a model that treats URLs as lists of decoded segments is compared with the implementation,
which compiles locations to keys. Tables list valid and invalid locations.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.server.guard.access.grants import GrantInvalid, Operation, parse_grant
from tailrace.server.guard.access.principal import Principal
from tailrace.server.routing.target import resolve

# Few letters, so that names are often prefixes of each other, and characters special in URLs.
SEGMENT = st.text("ab-/%*?é \0.\\:,", min_size=1, max_size=4)
STREAM_ID = SEGMENT.filter(
    lambda text: not {"/", "\0"} & set(text) and ".." not in text and text not in (".", "streams")
)
PATH_SEGMENT = SEGMENT.filter(lambda text: not set("/\0\\") & set(text) and text not in (".", ".."))
BUCKET = st.text("ab-", min_size=4, max_size=6)

BUCKETED = st.tuples(BUCKET) | st.tuples(BUCKET, STREAM_ID)
BASE = st.lists(PATH_SEGMENT, min_size=1, max_size=3).map(lambda path: ("v1", "stream", *path))
SEGMENTS = BUCKETED | BASE


class Location(NamedTuple):
    """A location in the model."""

    segments: tuple[str, ...]
    starred: bool

    def covers(self, url: tuple[str, ...]) -> bool:
        if not self.starred:
            return url[: len(self.segments)] == self.segments
        *before, start = self.segments
        if len(url) <= len(before) or list(url[: len(before)]) != before:
            return False
        if not before and url[0] == "v1":
            # A star in the first segment matches buckets only.
            return False
        return url[len(before)].startswith(start)


def spelled(segments: tuple[str, ...], escape: bool) -> str:
    """The URL; optional escapes are made, or not."""
    safe = "" if escape else "é:,-."
    return "".join("/" + quote(segment, safe=safe) for segment in segments)


def everything_escaped(segments: tuple[str, ...]) -> str:
    return "/" + "/".join("".join(f"%{byte:02x}" for byte in s.encode()) for s in segments)


# A slow machine is not a failure.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

LOCATIONS = st.builds(Location, SEGMENTS, st.booleans())


def key(url: tuple[str, ...]) -> bytes:
    return resolve(spelled(url, escape=True).encode()).key


def granted(location: Location, *, escape: bool) -> Principal:
    star = "*" if location.starred else ""
    return Principal("x", [parse_grant(f"read:{spelled(location.segments, escape)}{star}")])


@unhurried
@given(location=LOCATIONS, url=SEGMENTS, escape=st.booleans())
def test_a_location_covers_whole_segments_or_a_prefix(
    location: Location, url: tuple[str, ...], escape: bool
) -> None:
    principal = granted(location, escape=escape)
    assert principal.may(Operation.READ, key(url)) == location.covers(url)
    assert not principal.may(Operation.APPEND, key(url))


@unhurried
@given(url=SEGMENTS, end=st.text("ab-", min_size=1, max_size=3))
def test_a_longer_name_is_another_name(url: tuple[str, ...], end: str) -> None:
    longer = (*url[:-1], url[-1] + end)
    assert granted(Location(url, starred=False), escape=True).may(Operation.READ, key(url))
    assert not granted(Location(url, starred=False), escape=True).may(Operation.READ, key(longer))
    assert granted(Location(url, starred=True), escape=True).may(Operation.READ, key(longer))


@unhurried
@given(url=SEGMENTS)
def test_all_spellings_of_a_name_are_one_location(url: tuple[str, ...]) -> None:
    plain = parse_grant("read:" + spelled(url, escape=False))
    bucket = url[0] if url[0] != "v1" else ""
    # The first segments are compared literally, so only the rest is escaped.
    first, rest = (url[:1], url[1:]) if bucket else (url[:2], url[2:])
    location = spelled(first, escape=True) + (everything_escaped(rest) if rest else "")
    escaped = parse_grant("read:" + location)
    assert (plain.key, plain.prefix) == (escaped.key, escaped.prefix)


@unhurried
@given(location=LOCATIONS, below=SEGMENTS, longer=SEGMENTS)
def test_may_all_means_may_for_each(
    location: Location, below: tuple[str, ...], longer: tuple[str, ...]
) -> None:
    """A key with a granted prefix is granted itself."""
    principal = granted(location, escape=True)
    prefix = key(below)
    if principal.may_all(Operation.READ, prefix) and key(longer).startswith(prefix):
        assert principal.may(Operation.READ, key(longer))
    if principal.may_all(Operation.READ, prefix):
        assert principal.may(Operation.READ, prefix)


@unhurried
@given(
    locations=st.lists(LOCATIONS, max_size=3),
    beginning=SEGMENTS,
    urls=st.lists(SEGMENTS, max_size=3),
)
def test_granted_returns_exactly_the_readable_keys(
    locations: list[Location], beginning: tuple[str, ...], urls: list[tuple[str, ...]]
) -> None:
    grants = [grant for location in locations for grant in granted(location, escape=True).grants]
    principal = Principal("x", grants)
    prefix = key(beginning)
    parts = principal.granted(Operation.READ, prefix)
    for found in map(key, urls):
        holding = [part for part, is_prefix in parts
                   if found == part or (is_prefix and found.startswith(part))]  # fmt: skip
        readable = found.startswith(prefix) and principal.may(Operation.READ, found)
        # In one part only, so that a listing has no duplicates.
        assert len(holding) == readable
    assert parts == sorted(parts)


@unhurried
@given(location=LOCATIONS, other=LOCATIONS, url=SEGMENTS)
def test_grants_add_up(location: Location, other: Location, url: tuple[str, ...]) -> None:
    both = Principal(
        "x", (*granted(location, escape=True).grants, *granted(other, escape=True).grants)
    )
    assert both.may(Operation.READ, key(url)) == (location.covers(url) or other.covers(url))


def test_operations_are_granted_one_by_one() -> None:
    for operation in Operation:
        principal = Principal("x", [parse_grant(f"{operation}:/chat-rooms")])
        assert [each for each in Operation if principal.may(each, b"chat-rooms\0a")] == [operation]


def test_all_of_everything() -> None:
    principal = Principal("x", [parse_grant("*:/")])
    for found in (b"chat-rooms", b"chat-rooms\0a", b"\0a/b", b"/-/metrics", b"/-/backup"):
        for operation in Operation:
            assert principal.may(operation, found)
            assert principal.may_all(operation, found)


def test_the_keys_of_locations() -> None:
    for location, inside, outside in (
        ("/chat-rooms", [b"chat-rooms", b"chat-rooms\0a"], [b"chat-rooms2", b"\0chat-rooms"]),
        ("/chat-rooms/*", [b"chat-rooms\0a"], [b"chat-rooms", b"chat-rooms2\0a"]),
        ("/chat-rooms/a", [b"chat-rooms\0a"], [b"chat-rooms", b"chat-rooms\0ab", b"\0a"]),
        ("/logs-*", [b"logs-a", b"logs-a\0x"], [b"logs", b"\0logs-a", b"/-/metrics"]),
        ("/-*", [b"-abc"], [b"/-/metrics"]),
        ("/v1/stream", [b"\0a", b"\0a/b"], [b"aaaa", b"/-/metrics"]),
        ("/v1/stream/", [b"\0a", b"\0a/b"], [b"aaaa"]),
        ("/v1/stream/*", [b"\0a", b"\0a/b"], [b"aaaa"]),
        ("/v1/stream/a", [b"\0a", b"\0a/b"], [b"\0ab", b"\0ab/c"]),
        ("/v1/stream/a/*", [b"\0a/b"], [b"\0a", b"\0ab"]),
        ("/v1/stream/a*", [b"\0a", b"\0ab", b"\0a/b"], [b"\0b"]),
        ("/v1/stream/a%2Fb", [b"\0a/b"], [b"\0a"]),
        ("/-/metrics", [b"/-/metrics"], [b"/-/backup", b"/-/metrics2"]),
        ("/-", [b"/-/metrics", b"/-/backup"], [b"aaaa", b"\0a"]),
        ("/-/*", [b"/-/metrics", b"/-/backup"], [b"aaaa", b"\0a"]),
    ):
        principal = Principal("x", [parse_grant(f"read:{location}")])
        assert [key for key in inside if not principal.may(Operation.READ, key)] == [], location
        assert [key for key in outside if principal.may(Operation.READ, key)] == [], location


def test_invalid_grants_are_errors() -> None:
    for text in (
        "", "read", "/chat-rooms", "read:", ":/chat-rooms", "read:chat-rooms", "write:/chat-rooms",
        "READ:/chat-rooms", "read,:/chat-rooms", "read, append:/chat-rooms", "read;append:/a",
        "*,read:/chat-rooms", "read:/*", "read:/*/a", "read:/chat-*/a", "read:/chat-rooms/**",
        "read:/abc", "read:/Chat-Rooms", "read:/chat-rooms/", "read:/chat-rooms/a/b",
        "read:/chat-rooms/streams", "read:/chat-rooms/a/snapshot", "read:/chat-rooms/a/bootstrap",
        "read:/chat-rooms/a/snapshot/1", "read:/chat-rooms/a/*", "read:/chat-rooms/..",
        "read:/chat-rooms/a%2Fb", "read:/chat-rooms/a?b", "read:/chat-rooms/a#b", "read://",
        "read:/chat-rooms/%", "read:/chat-rooms/%0*", "read:/chat-rooms/%zz",
        "read:/chat-rooms/%ff", "read:/chat-rooms/%00", "read:/v1", "read:/v1/",
        "read:/v1/streams", "read:/v1/stream*", "read:/v1/stream//a", "read:/v1/stream/../a",
        "read:/v1/stream/a/", "read:/v1/stream/a/./*", "read:/-/Metrics", "read:/-/a/b",
        "read:/-/met*", "read:/\ud800", "read:/" + "a" * 9000, "subscribe:/v1/stream/__ds",
        "subscribe:/v1/stream/__ds/*", "subscribe:/chat-rooms/__ds/subscriptions/a",
    ):  # fmt: skip
        with pytest.raises(GrantInvalid):
            parse_grant(text)
