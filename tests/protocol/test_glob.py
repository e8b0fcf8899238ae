"""Patterns: `*` is one segment, `**` any number; against a regular expression and the index."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.engine.subscriptions.entry import SubscriptionEntry
from tailrace.engine.subscriptions.index import SubscriptionIndex
from tailrace.protocol.glob import Glob
from tailrace.protocol.subscription import SubscriptionConfig, SubscriptionState

SEGMENT = st.sampled_from(["a", "b", "a*", "é", "*", "**", "**"])
PATTERN = st.lists(SEGMENT, min_size=1, max_size=6).map("/".join)
PATH = st.lists(st.sampled_from(["a", "b", "a*", "é"]), min_size=1, max_size=6).map("/".join)


def naive(pattern: str) -> re.Pattern[str]:
    """Each segment with the slash before it, of a path that begins with a slash."""
    parts = {"*": "/[^/]+", "**": "(?:/[^/]+)*"}
    return re.compile(
        "".join(parts.get(text, "/" + re.escape(text)) for text in pattern.split("/"))
    )


@given(PATTERN, PATH)
def test_a_pattern_matches_what_a_regular_expression_matches(pattern: str, path: str) -> None:
    expected = naive(pattern).fullmatch("/" + path) is not None
    glob = Glob(pattern)
    assert glob.matches(path.encode()) is expected
    if expected:
        assert path.encode().startswith(glob.prefix)


@given(st.lists(PATTERN, max_size=12), st.lists(PATH, min_size=1, max_size=6), st.data())
def test_the_index_finds_the_patterns_that_match(
    patterns: list[str], paths: list[str], data: st.DataObject
) -> None:
    """Also after some are removed; explicit links count too, and each is found once."""
    index = SubscriptionIndex()
    entries = []
    for number, pattern in enumerate(patterns):
        config = SubscriptionConfig(type="webhook", pattern=pattern)
        state = SubscriptionState(id=number, config=config, digest=b"", owner=None, created_at=0)
        entry = SubscriptionEntry(b"\0%d" % number, state)
        entry.explicit = dict.fromkeys(
            path.encode() for path in data.draw(st.lists(st.sampled_from(paths), unique=True))
        )
        index.add(entry)
        entries.append(entry)
    for entry in (
        entries if not entries else data.draw(st.lists(st.sampled_from(entries), unique=True))
    ):
        index.remove(entry)
        entries.remove(entry)
    for path in paths:
        found = index.watchers(b"\0" + path.encode())
        assert len(found) == len(set(found))
        assert set(found) == {entry for entry in entries if entry.is_linked(path.encode())}
        assert index.watchers(b"bucket\0" + path.encode()) == ()
    for entry in entries:
        index.remove(entry)
    assert (index._roots, index._explicit) == ({}, {})


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("a/b", b"a/b"),
        ("a/*", b"a/"),
        ("a/**", b"a"),
        ("a/**/b", b"a"),
        ("**", b""),
        ("*", b""),
        ("*/a", b""),
        ("a/b/*/c", b"a/b/"),
        ("%2A/*", b"*/"),
    ],
)
def test_the_literal_prefix(pattern: str, prefix: bytes) -> None:
    assert Glob(pattern).prefix == prefix


def test_an_escaped_star_is_a_star() -> None:
    assert Glob("a/%2A").matches(b"a/*")
    assert Glob("a/%2a%2A").matches(b"a/**")
    assert not Glob("a/%2A").matches(b"a/b")


def test_many_wildcards_do_not_backtrack_for_ever() -> None:
    pattern = "/".join(["**", "a"] * 60) + "/b"
    path = b"/".join([b"a"] * 300)
    assert not Glob(pattern).matches(path)


def test_a_path_with_an_empty_last_segment_is_longer_than_the_pattern() -> None:
    assert not Glob("a").matches(b"a/")
    assert Glob("a/*").matches(b"a/")
