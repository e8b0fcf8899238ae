"""§7.1: flattening by one level, strict validation, and bytes that stay as they were sent."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocol.errors import JsonInvalid
from tailrace.protocol.json_mode import array_parts, split_messages
from tailrace.protocol.limits import JSON_MESSAGES_MAX

NESTING = 256


def split(body: bytes) -> list[bytes]:
    return [bytes(message) for message in split_messages(body)]


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        # The examples of §7.1.
        (b'{"event": "created"}', [b'{"event": "created"}']),
        (b'[{"event": "a"}, {"event": "b"}]', [b'{"event": "a"}', b'{"event": "b"}']),
        (b"[[1,2], [3,4]]", [b"[1,2]", b"[3,4]"]),
        (b"[[[1,2,3]]]", [b"[[1,2,3]]"]),
        (b"[]", []),
        # Every kind of value is a message.
        (b"null", [b"null"]),
        (b"true", [b"true"]),
        (b"-0", [b"-0"]),
        (b'""', [b'""']),
        (b"{}", [b"{}"]),
        (b'[null,false,0,"",{},[]]', [b"null", b"false", b"0", b'""', b"{}", b"[]"]),
    ],
)
def test_an_array_is_flattened_by_exactly_one_level(body: bytes, messages: list[bytes]) -> None:
    assert split(body) == messages


@pytest.mark.parametrize(
    "element",
    [
        b"12345678901234567890123",
        b"1e2",
        b"1E+02",
        b"-0.0",
        b"0.10",
        b"1e400",
        b"-1E+999",
        b"9" * 400,
        b'{"b":1,"a":2,"b":3}',
        b'{ "a" :\t[ 1 ,\r\n2 ] }',
        rb'"\u00e9\/\ud83d\ude00"',
        '"é😀\u2028"'.encode(),
        rb'"[,]{:}\"\\"',
        b'"\x7f"',
        rb'"\u0000"',
    ],
)
def test_the_bytes_of_each_element_stay_as_they_were_sent(element: bytes) -> None:
    assert split(element) == [element]
    assert split(b"[ " + element + b" ,\n" + element + b"\t]") == [element, element]


def test_white_space_around_elements_and_around_the_body_is_dropped() -> None:
    assert split(b" \t\r\n1\n ") == [b"1"]
    assert split(b"\n[\t1\r,\n 2 \t]\r\n") == [b"1", b"2"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"[1", b"[1,]", b"[,1]", b'{"a":1,}', b"{'a':1}", b"{a:1}", b"1 2",
        b"[1][2]", b"NaN", b"[Infinity]", b"-Infinity", b"01", b"+1", b".5", b"1.", b"1e",
        b"0x10", b"True", b"nul", b'"', b'"\x01"', b'"a\nb"', rb'"\x41"', rb'"\u12"',
        b"\xef\xbb\xbf1", b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b"\xa0 1", b"\x0c1",
        b"// 1\n1", b"/**/1", b"1\x00", b"[1]]", b"[1]x", "１".encode(),
    ],
)  # fmt: skip
def test_what_is_not_json_by_rfc_8259_is_refused(body: bytes) -> None:
    """Also inside an array, where another parser does the cutting."""
    for text in (body, b"[0," + body + b"]"):
        with pytest.raises(JsonInvalid) as caught:
            split_messages(text)
        assert caught.value.status == 400
        assert caught.value.detail


@pytest.mark.parametrize(
    "element",
    [
        rb'"\ud83d"',
        rb'"\uDC00\uD800"',
        rb'{"\udfff":1}',
        rb'"\ud83d\u0041"',
        rb'"\ud83d\ud83d\ude00"',
        rb'"\\\ud83d"',
        rb'["\ud83d, [\"", {"a":"\udfff"}]',
    ],
)
def test_escaped_halves_of_surrogate_pairs_are_kept(element: bytes) -> None:
    """RFC 8259, 8.2: they are valid; a JavaScript string that is cut inside an emoji has them."""
    assert split(b" [ " + element + b" ,1,\n" + element + b"\t]") == [element, b"1", element]
    assert split(b"[" + element + b"]") == [element]
    if element[:1] != b"[":
        assert split(element + b" ") == [element]


@pytest.mark.parametrize(
    "body",
    [rb'"\ud83d', rb'["\ud83d",]', rb'"\ud83d\ud8"', rb'"\ud83d\x"', rb"\ud83d", rb'["\ud83d"]]'],
)
def test_such_a_half_does_not_make_other_errors_valid(body: bytes) -> None:
    with pytest.raises(JsonInvalid):
        split_messages(body)


class TestNumberOfMessages:
    """The limit counts messages, and not commas inside of them."""

    @pytest.mark.parametrize(
        "message",
        [
            b'"' + b"," * JSON_MESSAGES_MAX + b'"',
            b'"\\",\\\\' + b",[" * JSON_MESSAGES_MAX + b'"',
            b"[" + b"1," * JSON_MESSAGES_MAX + b"1]",
            b'{"a,":",","b":[' + b'{"c":[]},' * JSON_MESSAGES_MAX + b"[[[]]]]}",
        ],
        ids=["string", "escapes", "array", "object"],
    )
    def test_commas_inside_a_message_do_not_count(self, message: bytes) -> None:
        assert split(b"[" + message + b", 1]") == [message, b"1"]

    @pytest.mark.parametrize("message", [b"1", b'","', b"[1,[2]]"])
    def test_the_limit(self, message: bytes) -> None:
        most = b"[" + (message + b",") * (JSON_MESSAGES_MAX - 1) + message
        assert len(split_messages(most + b"]")) == JSON_MESSAGES_MAX
        with pytest.raises(JsonInvalid, match="1000000 messages at most"):
            split_messages(most + b",1]")

    def test_what_is_nested_too_deeply_to_be_counted_is_refused(self) -> None:
        """Counting takes a bounded time."""
        body = b"[" + (b"[1," * 300 + b"1" + b"]" * 300 + b",") * 20_000 + b"1]"
        with pytest.raises(JsonInvalid, match="messages at most"):
            split_messages(body)


@pytest.mark.parametrize("body", [b'{"a":', b"[1, 2", b'{"key": tru}'])
def test_the_reason_says_where_and_stays_short(body: bytes) -> None:
    with pytest.raises(JsonInvalid) as caught:
        split_messages(b"[" + b'"x",' * 10_000 + body)
    assert len(caught.value.detail) < 300


class TestNesting:
    """Deep enough for anyone, and never the end of the process."""

    @pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
    def test_from_any_depth_of_calls(self, opening: bytes, closing: bytes) -> None:
        """`decide` is pure: the same body gets the same verdict at any depth of the stack."""
        body = opening * NESTING + b"1" + closing * NESTING

        def call(depth: int) -> list[bytes]:
            return call(depth - 1) if depth else split(body)

        assert len(call(0)) == 1
        assert call(0) == call(400)

    @pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
    def test_far_too_deep_is_refused(self, opening: bytes, closing: bytes) -> None:
        """The interpreter's limit applies; that of Python 3.14 depends on the C stack."""
        depth = 1_000_000
        with pytest.raises(JsonInvalid):
            split_messages(opening * depth + b"1" + closing * depth)
        with pytest.raises(JsonInvalid):
            split_messages(opening * depth)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS, inner,
                          max_size=3)
    ),
    max_leaves=12,
)  # fmt: skip
SPACES = st.text(" \t\r\n", max_size=3)


def spell(data: st.DataObject, value: Any) -> str:
    """One of the many texts of a JSON value: white space, escapes and numbers vary."""

    def space() -> str:
        return data.draw(SPACES)

    if isinstance(value, dict):
        pairs = [
            f"{space()}{spell(data, key)}{space()}:{space()}{spell(data, item)}{space()}"
            for key, item in value.items()
        ]
        return "{" + (",".join(pairs) or space()) + "}"
    if isinstance(value, list):
        items = [f"{space()}{spell(data, item)}{space()}" for item in value]
        return "[" + (",".join(items) or space()) + "]"
    return json.dumps(value, ensure_ascii=data.draw(st.booleans()))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), value=VALUES)
def test_the_messages_are_what_pythons_json_reads(data: st.DataObject, value: Any) -> None:
    """
    Goal: cutting loses nothing, adds nothing and re-encodes nothing.

    Method: spell a random value with random white space; the standard library reads the whole,
    and the messages, read one by one, must be the same values; the bytes of each occur in the
    body, one after the other, with nothing but white space and one comma in between.
    """
    elements = value if isinstance(value, list) else [value]
    spellings = [spell(data, element) for element in elements]
    if isinstance(value, list):
        padded = [data.draw(SPACES) + text + data.draw(SPACES) for text in spellings]
        text = "[" + (",".join(padded) or data.draw(SPACES)) + "]"
    else:
        text = spellings[0]
    body = (data.draw(SPACES) + text + data.draw(SPACES)).encode()
    messages = split(body)
    assert [json.loads(message) for message in messages] == elements
    assert messages == [text.encode() for text in spellings]
    at = 0
    for message in messages:
        at = body.index(message, at) + len(message)


NOISE = st.sampled_from([*'[]{},:"\\ \t\n019.eE+-truefalsn', r"\ud83d", r"\ude00"])


@settings(max_examples=400, deadline=None)
@given(text=st.lists(NOISE, max_size=14).map("".join))
def test_the_same_texts_are_json_as_for_pythons_json(text: str) -> None:
    """Goal: neither laxer nor stricter. Method: noise from JSON's own alphabet."""

    def no_constant(name: str) -> None:
        raise ValueError(name)

    try:
        value = json.loads(text, parse_constant=no_constant, parse_float=str)
    except ValueError:
        with pytest.raises(JsonInvalid):
            split_messages(text.encode())
        return
    messages = split(text.encode())
    assert len(messages) == (len(value) if isinstance(value, list) else 1)


@given(messages=st.lists(st.binary(min_size=1, max_size=5), max_size=5), cut=st.integers(0, 5))
def test_stored_messages_become_one_array(messages: list[bytes], cut: int) -> None:
    """Wherever the pieces were cut: only the very last comma is dropped."""
    stored = [message + b"," for message in messages]
    pieces = [piece for piece in (b"".join(stored[:cut]), b"".join(stored[cut:])) if piece]
    expected = b"[" + b",".join(messages) + b"]"
    assert b"".join(array_parts(pieces)) == expected
    assert b"".join(array_parts([memoryview(piece) for piece in pieces])) == expected
