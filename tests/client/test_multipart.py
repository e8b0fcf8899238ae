"""The parser of multipart responses: any content, split anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.multipart import PartParser, RawPart, boundary_of

BOUNDARY = b"tailrace-0123"
NASTY = st.lists(
    st.sampled_from([b"\r\n", b"\r", b"--", b"-", b"tailrace-", b"\r\n--", b"x", b"\r\n\r\n"])
).map(b"".join)


def encode(parts: list[bytes]) -> bytes:
    head = b"--" + BOUNDARY + b"\r\nContent-Type: a/b\r\n\r\n"
    return b"\r\n".join(head + part for part in parts) + b"\r\n--" + BOUNDARY + b"--\r\n"


def parse(text: bytes, places: list[int]) -> list[RawPart]:
    parser = PartParser(BOUNDARY)
    cuts = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    found = [part for a, b in pairwise(cuts) for part in parser.feed(text[a:b])]
    assert parser.ended
    return found


@given(parts=st.lists(NASTY | st.binary(), min_size=1), cuts=st.lists(st.integers(0, 600)))
def test_parts_survive_any_split_of_the_input(parts: list[bytes], cuts: list[int]) -> None:
    assert parse(encode(parts), cuts) == [RawPart("a/b", part) for part in parts]


def test_byte_by_byte() -> None:
    parts = [b"", b"\r\n--tailrace-012", b"\r\n--tailrace-01234\r\n", b"--"]
    text = encode(parts)
    assert parse(text, list(range(len(text)))) == [RawPart("a/b", part) for part in parts]


def test_a_truncated_body_has_not_ended() -> None:
    text = encode([b"one", b"two"])
    parser = PartParser(BOUNDARY)
    assert [part.data for part in parser.feed(text[: text.index(b"two") + 3])] == [b"one"]
    assert not parser.ended


def test_a_preamble_an_epilogue_and_other_headers_are_no_parts() -> None:
    text = b"hello\r\n--B\r\nX: y\r\n\r\none\r\n--B\r\n\r\ntwo\r\n--B--\r\nbye\r\n--B\r\n\r\n"
    parser = PartParser(b"B")
    assert list(parser.feed(text)) == [RawPart(None, b"one"), RawPart(None, b"two")]


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/mixed; boundary=abc", b"abc"),
        ('Multipart/Mixed; x=y; boundary="a b"', b"a b"),
        ("multipart/mixed", None),
        ("text/plain; boundary=abc", None),
        ("", None),
    ],
)
def test_the_boundary_is_in_the_type(content_type: str, boundary: bytes | None) -> None:
    assert boundary_of(content_type) == boundary
