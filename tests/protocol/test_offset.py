"""§6: offsets are opaque, sortable, unique and never a sentinel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.protocol.errors import OffsetInvalid
from tailrace.protocol.offset import BEGINNING, START, TAIL, Offset, parse_offset

OFFSETS = st.builds(Offset, st.integers(0, 10**16 - 1), st.integers(0, 10**16 - 1))
# Positions of one stream: messages of one byte at least, so both numbers grow together.
STREAMS = st.lists(st.integers(1, 10**12), min_size=1, max_size=30)


@given(offset=OFFSETS)
def test_round_trip(offset: Offset) -> None:
    assert parse_offset(offset.token()) == offset


@given(sizes=STREAMS)
def test_tokens_sort_as_text_in_the_order_of_their_positions(sizes: list[int]) -> None:
    """§6: lexicographically sortable, unique, strictly increasing."""
    positions = [START]
    for size in sizes:
        positions.append(Offset(positions[-1].message + 1, positions[-1].byte + size))
    tokens = [position.token() for position in positions]
    assert sorted(tokens) == tokens
    assert len(set(tokens)) == len(tokens)


@given(offset=OFFSETS)
def test_a_token_is_short_safe_in_urls_and_never_a_sentinel(offset: Offset) -> None:
    token = offset.token()
    assert len(token) < 256
    assert not set(token) & set(",&=?/")
    assert token.replace("_", "").isalnum()
    assert token not in (BEGINNING, TAIL)


def test_everything_else_is_400() -> None:
    for token in [
        "",
        "-1",
        "now",
        "0",
        "0_0",
        "0000000000000000",
        "0000000000000000_000000000000000",
        "00000000000000000_000000000000000",
        "0000000000000000_0000000000000000 ",
        "0000000000000000_0000000000000000\n",
        " 0000000000000000_0000000000000000",
        "0000000000000000-0000000000000000",
        "000000000000000a_0000000000000000",
        "+000000000000001_0000000000000000",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠_0000000000000000",
        "0000000000000000_0000000000000000_0000000000000000",
        "x" * 100_000,
    ]:
        with pytest.raises(OffsetInvalid) as caught:
            parse_offset(token)
        assert caught.value.status == 400
        assert len(caught.value.detail) < 400


@given(text=st.text(max_size=40))
def test_every_token_that_parses_is_formatted_the_same(text: str) -> None:
    try:
        offset = parse_offset(text)
    except OffsetInvalid:
        return
    assert offset.token() == text
