"""A second opinion on what is JSON: whatever `orjson` refuses we refuse, and the reverse."""

import json
import re

import orjson
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tailrace.protocol.errors import JsonInvalid
from tailrace.protocol.json_mode import split_messages

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
# What JSON is made of, and what breaks it: escapes, control characters, halves of UTF-8.
PIECES = st.sampled_from(
    [bytes([byte]) for byte in b'[]{},:"\\0123456789eE+-.tfnu \n\t\r\x00\x1f\x7f\x80\xff\xc3\xed']
    + [b"NaN", b"Infinity", b"\\ud800", b"\\ud83d\\ude00", b"\xef\xbb\xbf", b"1e999", b"\\x", b"//"]
)


@st.composite
def broken_json(draw: st.DrawFn) -> bytes:
    """A valid text with a few pieces put in, put over others, or taken out."""
    body = json.dumps(draw(VALUES), ensure_ascii=draw(st.booleans())).encode()
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        until = draw(st.integers(at, min(len(body), at + 2)))
        body = body[:at] + draw(PIECES | st.just(b"")) + body[until:]
    return body


def accepts(body: bytes) -> bool:
    try:
        split_messages(body)
    except JsonInvalid:
        return False
    return True


@given(body=broken_json())
@example(body=b'"\xed\xa0\x80"')
@example(body=b'["a",]')
@example(body=b"")
def test_we_accept_what_orjson_accepts(body: bytes) -> None:
    """
    Goal: no text is stored that is not JSON, and none is refused that is.

    Method: mutate valid texts and compare verdicts; numbers that do not fit a double and halves of
    surrogate pairs aside, which `orjson` refuses.
    """
    try:
        orjson.loads(body)
        verdict = True
    except orjson.JSONDecodeError as error:
        assume("infinity" not in str(error))
        assume(re.search(rb"\\u[dD][89a-fA-F]", body) is None)
        verdict = False
    assert accepts(body) == verdict, body


def test_a_number_may_be_larger_than_a_double() -> None:
    """RFC 8259 has no limit, and the bytes are kept: `orjson` refuses these, we do not."""
    for body in [b"1e999", b"-0.1E+511", b"[1e400, 2]"]:
        assert accepts(body)
