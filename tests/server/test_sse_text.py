"""Event streams of text: characters stay whole, and bytes that are not UTF-8 go in base64."""

from __future__ import annotations

import base64
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.looping import for_each
from tests.support.streams import Api, EventStream, text_of

EURO = "€".encode()
EMOJI = "😀".encode()


def is_base64(events: EventStream) -> bool:
    return events.head.headers.get("stream-sse-data-encoding") == "base64"


def read_exactly(api: Api, path: str, tail: str, start: str = "-1") -> tuple[bytes, list[bool]]:
    """
    Read up to an offset as a client does, over as many connections as it takes.

    Returns the bytes, and whether each connection was in base64.
    """
    content, offset, modes = b"", start, []
    while offset != tail:
        with api.sse(path, f"offset={offset}") as events:
            binary = is_base64(events)
            modes.append(binary)
            for event in events:
                if event.kind == "data":
                    data = event.data
                    content += base64.b64decode(data, validate=True) if binary else data.encode()
                elif (offset := event.json["streamNextOffset"]) == tail:
                    break
        assert len(modes) < 20
    return content, modes


@for_each("cut", [1, 2, 3])
def test_a_character_in_two_appends_reaches_a_live_reader_whole(api: Api, cut: int) -> None:
    path = api.create(body=b"a")
    with api.sse(path) as events, api.sse(path, "offset=now") as second:
        before = events.until(tail=api.tail(path))[-1].json["streamNextOffset"]
        second.next()
        api.append(path, b"x" + EMOJI[:cut])
        tail = api.append(path, EMOJI[cut:] + b"y")
        for reader in (events, second):
            seen = reader.until(tail=tail)
            assert text_of(seen) == "x😀y"
            # No offset between the two: a reader that resumed there would lose a character.
            assert {
                event.json["streamNextOffset"] for event in seen if event.kind == "control"
            } <= {
                before,
                tail,
            }
        assert text_of(events.until(tail=api.append(path, b"!"))) == "!"


def test_a_character_in_four_appends(api: Api) -> None:
    path = api.create()
    with api.sse(path) as events:
        events.next()
        for byte in EMOJI:
            tail = api.append(path, bytes([byte]))
        assert text_of(events.until(tail=tail)) == "😀"


def test_a_character_in_two_appends_on_catch_up(api: Api) -> None:
    path = api.create(body=b"a" + EURO[:1])
    api.append(path, EURO[1:] + b"b" + EMOJI[:2])
    tail = api.append(path, EMOJI[2:])
    with api.sse(path) as events:
        assert not is_base64(events)
        assert text_of(events.until(tail=tail)) == "a€b😀"


def test_catch_up_in_small_chunks(short: Api) -> None:
    """A chunk that ends inside a character is extended, or ends at the message before."""
    path = short.create()
    text = ("0123456789€" * 40).encode()
    for at in range(0, len(text), 7):
        tail = short.append(path, text[at : at + 7])
    assert read_exactly(short, path, tail)[0] == text


def test_every_offset_resumes_exactly(api: Api) -> None:
    """From each message boundary, also inside a character, a reader gets the bytes after it."""
    text = "a€b😀c".encode()
    path = api.create()
    offsets = ["-1"] + [api.append(path, bytes([byte])) for byte in text]
    for at, offset in enumerate(offsets[:-1]):
        content, modes = read_exactly(api, path, offsets[-1], offset)
        assert content == text[at:]
        inside = 0x80 <= text[at] < 0xC0
        assert modes == [inside], offset


def test_what_is_not_utf8_is_in_base64(api: Api) -> None:
    path = api.create(body=b"text, then ")
    tail = api.append(path, b"\xff\xfe")
    with api.sse(path) as events:
        assert not is_base64(events)
    content, modes = read_exactly(api, path, tail)
    assert content == b"text, then \xff\xfe"
    assert modes == [False, True]


def test_bytes_that_are_not_utf8_end_a_text_session_before_them(api: Api) -> None:
    """The client reconnects where they begin, and gets them in base64, and what follows."""
    path = api.create(body=b"a")
    with api.sse(path) as events, api.sse(path, "offset=now") as at_tail:
        tail = api.tail(path)
        events.until(tail=tail)
        at_tail.next()
        end = api.append(path, b"\xc0bad")
        for reader in (events, at_tail):
            assert [event.json["streamNextOffset"] for event in reader] == [tail]
    with api.sse(path, f"offset={tail}") as events:
        assert is_base64(events)
        assert base64.b64decode(events.until(tail=end)[0].data) == b"\xc0bad"
        later = api.append(path, b"good again")
        assert base64.b64decode(events.until(tail=later)[0].data) == b"good again"
    with api.sse(path, f"offset={end}") as events:
        assert not is_base64(events)
        assert text_of(events.until(tail=later)) == "good again"


def test_a_wrong_continuation_is_not_text(api: Api) -> None:
    """A character that begins in one append and does not continue in the next."""
    path = api.create(body=b"a")
    start = api.tail(path)
    with api.sse(path) as events:
        events.until(tail=start)
        api.append(path, EURO[:2])
        tail = api.append(path, b"b")
        assert [event.json["streamNextOffset"] for event in events][-1] == start
    assert read_exactly(api, path, tail, start) == (EURO[:2] + b"b", [True])


def test_a_character_that_the_end_of_the_stream_cuts_off(api: Api) -> None:
    path = api.create(body=b"a")
    start = api.tail(path)
    with api.sse(path) as events:
        events.until(tail=start)
        tail = api.append(path, b"b" + EURO[:1], {"Stream-Closed": "true"})
        last = list(events)[-1]
        assert last.json["streamNextOffset"] == start
        assert "streamClosed" not in last.json
    with api.sse(path, f"offset={start}") as events:
        assert is_base64(events)
        data, control = list(events)
        assert base64.b64decode(data.data) == b"b" + EURO[:1]
        assert control.json["streamClosed"] is True
    assert read_exactly(api, path, tail)[0] == b"ab" + EURO[:1]


def test_a_character_that_is_never_completed_is_sent_in_base64(api: Api) -> None:
    """After a few seconds; until then the reader waits for the rest."""
    path = api.create(body=b"a")
    tail = api.append(path, EURO[:2])
    content, modes = read_exactly(api, path, tail)
    assert (content, modes) == (b"a" + EURO[:2], [False, True])


@for_each(
    ("content_type", "binary"),
    [
        ("text/plain; charset=utf-8", False),
        ('text/plain;charset="UTF-8"', False),
        ("text/plain; format=flowed; charset=us-ascii", False),
        ("text/plain; charset=iso-8859-1", True),
        ("text/csv;charset=UTF-16", True),
        ("application/json; charset=latin1", False),
    ],
)
def test_the_charset_of_the_type(api: Api, content_type: str, binary: bool) -> None:
    path = api.create(content_type, b'"x"')
    with api.sse(path) as events:
        assert is_base64(events) is binary
        data = events.until(tail=api.tail(path))[0].data
    expected = b'["x"]' if "json" in content_type else b'"x"'
    assert (base64.b64decode(data) if binary else data.encode()) == expected


def test_no_event_stream_has_bytes_that_are_not_utf8(api: Api) -> None:
    """Whatever is appended, and wherever the reader begins."""
    path = api.create()
    offsets = ["-1"]
    for body in (b"a", b"\x80", EMOJI[:3], EMOJI[3:], b"\xed\xa0\x80", b"\xff", b"z"):
        offsets.append(api.append(path, body))
    for offset in offsets:
        with api.sse(path, f"offset={offset}") as events:
            events.next()
            events.raw.decode()


PIECES = st.lists(
    st.binary(min_size=1, max_size=3)
    | st.text(min_size=1, max_size=4).map(str.encode)
    | st.sampled_from([EURO[:1], EURO[1:], EMOJI[:2], EMOJI[2:], b"\xff", b" ", b"\n"]),
    min_size=1,
    max_size=12,
).map(lambda pieces: [piece.replace(b"\r", b"r") for piece in pieces])


@settings(settings.get_profile("server"))
@given(pieces=PIECES, data=st.data())
def test_any_bytes_arrive_as_they_were_appended(
    short: Api, pieces: list[bytes], data: st.DataObject
) -> None:
    """
    Whatever is appended, a reader gets exactly these bytes, from each offset that it is given.

    CR is excluded, which an event stream cannot represent in text.
    """
    path = short.create()
    offsets = ["-1"] + [short.append(path, piece) for piece in pieces]
    short.close_stream(path)
    start = data.draw(st.integers(0, len(pieces) - 1))
    content, _ = read_exactly(short, path, offsets[-1], offsets[start])
    assert content == b"".join(pieces[start:])


def test_a_live_reader_gets_any_bytes_in_order(api: Api) -> None:
    """Text and other bytes, appended one by one while the reader follows and reconnects."""
    pieces = [b"a", EURO[:2], EURO[2:] + b"b", b"\xff", EMOJI[:1], EMOJI[1:], b"z"]
    path = api.create()
    read: list[bytes] = []

    def follow() -> None:
        offset, closed = "-1", False
        while not closed:
            with api.sse(path, f"offset={offset}") as events:
                binary = is_base64(events)
                for event in events:
                    if event.kind == "data":
                        read.append(base64.b64decode(event.data) if binary else event.data.encode())
                    else:
                        offset = event.json["streamNextOffset"]
                        closed = event.json.get("streamClosed", False)

    reader = threading.Thread(target=follow)
    reader.start()
    for piece in pieces:
        api.append(path, piece)
    api.close_stream(path)
    reader.join()
    assert b"".join(read) == b"".join(pieces)
