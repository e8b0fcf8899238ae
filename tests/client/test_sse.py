"""The parser of Server-Sent Events: any bytes, cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.sse import Event, EventParser

TEXT = (
    b": a comment\n"
    b"event: data\ndata:[1,2]\n\n"
    b'event: control\ndata: {"streamNextOffset":"1"}\n\n'
    b"data: one\ndata:two\ndata\n\n"
    b"id: 7\nretry: 9\nevent: nothing\n\n"
    b"event: last\ndata:  spaced \xc3\xa9\n\n"
)
EVENTS = [
    Event("data", b"[1,2]"),
    Event("control", b'{"streamNextOffset":"1"}'),
    Event("message", b"one\ntwo\n"),
    Event("last", b" spaced \xc3\xa9"),
]


def parse(*pieces: bytes) -> list[Event]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte-order mark"])
def test_cut_at_every_byte(end: bytes, mark: bytes) -> None:
    """In two pieces, whatever the line ends, and byte by byte."""
    text = mark + TEXT.replace(b"\n", end)
    for at in range(len(text) + 1):
        assert parse(text[:at], text[at:]) == EVENTS
    assert parse(*(text[at : at + 1] for at in range(len(text)))) == EVENTS


def test_a_byte_order_mark_is_removed_at_the_beginning_only() -> None:
    assert parse(b"data:a\n\n\xef\xbb\xbfdata:b\n\n") == [Event("message", b"a")]


def test_an_event_without_its_blank_line_is_discarded() -> None:
    assert parse(b"data:a\n\ndata:b\n") == [Event("message", b"a")]


def test_an_event_without_data_is_discarded_with_its_name() -> None:
    assert parse(b"event: x\n\ndata:a\n\n") == [Event("message", b"a")]


def test_other_characters_are_no_line_ends() -> None:
    """Python knows more of them than this format does."""
    data = "a\x0b\x0c\x1c\x85\u2028b".encode()
    assert parse(b"data:" + data + b"\n\n") == [Event("message", data)]


@given(
    lines=st.lists(st.binary().filter(lambda line: not set(line) & set(b"\r\n")), min_size=1),
    ends=st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=1),
    cuts=st.lists(st.integers(0, 400)),
)
def test_events_round_trip(lines: list[bytes], ends: list[bytes], cuts: list[int]) -> None:
    """A blank line ends the event, so the last line of each has one that is of its own kind."""
    text = b""
    for at, line in enumerate(lines):
        text += b"data: " + line + ends[at % len(ends)]
    # After a CR, a line feed would belong to it: the blank line is a CRLF then.
    text += b"\r\n" if text.endswith(b"\r") else b"\n"
    text += b"\n"
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert parse(*pieces) == [Event("message", b"\n".join(lines))]
