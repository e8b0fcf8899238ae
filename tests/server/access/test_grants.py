"""
Grants: a place covers what lies in it, and nothing else, however it is spelled.

Method: a model that knows URLs as lists of decoded segments and nothing of keys, against the real
thing, which compiles places to keys; and a table of what is a place at all.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.server.guard.access.grants import GrantInvalid, Operation, parse_grant
from tailrace.server.guard.access.principal import Principal
from tailrace.server.target import resolve

# Few letters, so that names are often prefixes of each other; and what needs care in a URL.
SEGMENT = st.text("ab-/%*?é \0.\\:,", min_size=1, max_size=4)
STREAM_ID = SEGMENT.filter(
    lambda text: not {"/", "\0"} & set(text) and ".." not in text and text not in (".", "streams")
)
PATH_SEGMENT = SEGMENT.filter(lambda text: not set("/\0\\") & set(text) and text not in (".", ".."))
BUCKET = st.text("ab-", min_size=4, max_size=6)

BUCKETED = st.tuples(BUCKET) | st.tuples(BUCKET, STREAM_ID)
BASE = st.lists(PATH_SEGMENT, min_size=1, max_size=3).map(lambda path: ("v1", "stream", *path))
SEGMENTS = BUCKETED | BASE


class Place(NamedTuple):
    """A place as the model sees it."""

    segments: tuple[str, ...]
    starred: bool

    def covers(self, url: tuple[str, ...]) -> bool:
        if not self.starred:
            return url[: len(self.segments)] == self.segments
        *before, start = self.segments
        if len(url) <= len(before) or list(url[: len(before)]) != before:
            return False
        if not before and url[0] == "v1":
            # A star in the first segment is about buckets.
            return False
        return url[len(before)].startswith(start)


def spelled(segments: tuple[str, ...], escape: bool) -> str:
    """As it stands in a URL; what need not be escaped is, or is not."""
    safe = "" if escape else "é:,-."
    return "".join("/" + quote(segment, safe=safe) for segment in segments)


def everything_escaped(segments: tuple[str, ...]) -> str:
    return "/" + "/".join("".join(f"%{byte:02x}" for byte in s.encode()) for s in segments)


# A busy machine is no finding.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

PLACES = st.builds(Place, SEGMENTS, st.booleans())


def key(url: tuple[str, ...]) -> bytes:
    return resolve(spelled(url, escape=True).encode()).key


def granted(place: Place, *, escape: bool) -> Principal:
    star = "*" if place.starred else ""
    return Principal("x", [parse_grant(f"read:{spelled(place.segments, escape)}{star}")])


@unhurried
@given(place=PLACES, url=SEGMENTS, escape=st.booleans())
def test_a_place_covers_whole_segments_or_a_beginning(
    place: Place, url: tuple[str, ...], escape: bool
) -> None:
    principal = granted(place, escape=escape)
    assert principal.may(Operation.READ, key(url)) == place.covers(url)
    assert not principal.may(Operation.APPEND, key(url))


@unhurried
@given(url=SEGMENTS, end=st.text("ab-", min_size=1, max_size=3))
def test_a_longer_name_is_another_name(url: tuple[str, ...], end: str) -> None:
    longer = (*url[:-1], url[-1] + end)
    assert granted(Place(url, starred=False), escape=True).may(Operation.READ, key(url))
    assert not granted(Place(url, starred=False), escape=True).may(Operation.READ, key(longer))
    assert granted(Place(url, starred=True), escape=True).may(Operation.READ, key(longer))


@unhurried
@given(url=SEGMENTS)
def test_spellings_of_one_name_are_one_place(url: tuple[str, ...]) -> None:
    plain = parse_grant("read:" + spelled(url, escape=False))
    bucket = url[0] if url[0] != "v1" else ""
    # Where a surface begins is compared as it stands, so only what follows is escaped.
    first, rest = (url[:1], url[1:]) if bucket else (url[:2], url[2:])
    place = spelled(first, escape=True) + (everything_escaped(rest) if rest else "")
    escaped = parse_grant("read:" + place)
    assert (plain.key, plain.prefix) == (escaped.key, escaped.prefix)


@unhurried
@given(place=PLACES, below=SEGMENTS, longer=SEGMENTS)
def test_may_all_means_may_for_each(
    place: Place, below: tuple[str, ...], longer: tuple[str, ...]
) -> None:
    """Whatever begins with a prefix that is granted as a whole is granted by itself."""
    principal = granted(place, escape=True)
    prefix = key(below)
    if principal.may_all(Operation.READ, prefix) and key(longer).startswith(prefix):
        assert principal.may(Operation.READ, key(longer))
    if principal.may_all(Operation.READ, prefix):
        assert principal.may(Operation.READ, prefix)


@unhurried
@given(places=st.lists(PLACES, max_size=3), beginning=SEGMENTS, urls=st.lists(SEGMENTS, max_size=3))
def test_what_is_granted_of_a_listing_is_just_what_may_be_read(
    places: list[Place], beginning: tuple[str, ...], urls: list[tuple[str, ...]]
) -> None:
    grants = [grant for place in places for grant in granted(place, escape=True).grants]
    principal = Principal("x", grants)
    prefix = key(beginning)
    parts = principal.granted(Operation.READ, prefix)
    for found in map(key, urls):
        holding = [part for part, is_prefix in parts
                   if found == part or (is_prefix and found.startswith(part))]  # fmt: skip
        readable = found.startswith(prefix) and principal.may(Operation.READ, found)
        # Once: a listing that goes through the parts has nothing twice.
        assert len(holding) == readable
    assert parts == sorted(parts)


@unhurried
@given(place=PLACES, other=PLACES, url=SEGMENTS)
def test_grants_add_up(place: Place, other: Place, url: tuple[str, ...]) -> None:
    both = Principal(
        "x", (*granted(place, escape=True).grants, *granted(other, escape=True).grants)
    )
    assert both.may(Operation.READ, key(url)) == (place.covers(url) or other.covers(url))


@pytest.mark.parametrize("operation", Operation)
def test_operations_are_granted_one_by_one(operation: Operation) -> None:
    principal = Principal("x", [parse_grant(f"{operation}:/chat-rooms")])
    assert [each for each in Operation if principal.may(each, b"chat-rooms\0a")] == [operation]


def test_all_of_everything() -> None:
    principal = Principal("x", [parse_grant("*:/")])
    for place in (b"chat-rooms", b"chat-rooms\0a", b"\0a/b", b"/-/metrics", b"/-/backup"):
        for operation in Operation:
            assert principal.may(operation, place)
            assert principal.may_all(operation, place)


@pytest.mark.parametrize(
    ("place", "inside", "outside"),
    [
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
    ],
)
def test_what_lies_in_a_place(place: str, inside: list[bytes], outside: list[bytes]) -> None:
    principal = Principal("x", [parse_grant(f"read:{place}")])
    assert [key for key in inside if not principal.may(Operation.READ, key)] == []
    assert [key for key in outside if principal.may(Operation.READ, key)] == []


@pytest.mark.parametrize(
    "text",
    [
        "", "read", "/chat-rooms", "read:", ":/chat-rooms", "read:chat-rooms", "write:/chat-rooms",
        "READ:/chat-rooms", "read,:/chat-rooms", "read, append:/chat-rooms", "read;append:/a",
        "*,read:/chat-rooms", "read:/*", "read:/*/a", "read:/chat-*/a", "read:/chat-rooms/**",
        "read:/abc", "read:/Chat-Rooms", "read:/chat-rooms/", "read:/chat-rooms/a/b",
        "read:/chat-rooms/streams", "read:/chat-rooms/a/snapshot", "read:/chat-rooms/a/bootstrap",
        "read:/chat-rooms/a/snapshot/1", "read:/chat-rooms/a/*", "read:/chat-rooms/..",
        "read:/chat-rooms/a%2Fb", "read:/chat-rooms/a?b", "read:/chat-rooms/a#b", "read://",
        "read:/chat-rooms/%", "read:/chat-rooms/%0*", "read:/chat-rooms/%zz",
        "read:/chat-rooms/%ff", "read:/chat-rooms/%00", "read:/v1", "read:/v1/",
        "read:/v1/streams/a", "read:/v1/stream*", "read:/v1/stream//a", "read:/v1/stream/../a",
        "read:/v1/stream/a/", "read:/v1/stream/a/./*", "read:/-/Metrics", "read:/-/a/b",
        "read:/-/met*", "read:/\ud800", "read:/" + "a" * 9000,
    ],
)  # fmt: skip
def test_what_is_no_grant_is_refused_and_not_taken_for_nothing(text: str) -> None:
    with pytest.raises(GrantInvalid):
        parse_grant(text)
