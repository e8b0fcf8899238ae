"""LZ4, as far as the index of a table needs it."""

from __future__ import annotations

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.engine.rocks.lz4 import decompress

PIECES = st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 600))


@given(pieces=st.lists(PIECES, max_size=8))
def test_what_was_compressed_comes_back(pieces: list[tuple[bytes, int]]) -> None:
    """Short and long literals and matches, and matches that repeat what they write."""
    data = b"".join(piece * count for piece, count in pieces)
    packed = pyarrow.compress(data, codec="lz4_raw", asbytes=True)
    assert decompress(packed, len(data)) == data


@given(data=st.binary(max_size=60), size=st.integers(0, 400))
def test_anything_else_is_refused_or_of_the_size_that_it_should_have(
    data: bytes, size: int
) -> None:
    try:
        found = decompress(data, size)
    except (ValueError, IndexError):
        return
    assert len(found) == size


def test_what_is_cut_off_is_refused() -> None:
    packed = pyarrow.compress(b"index" * 100, codec="lz4_raw", asbytes=True)
    for end in range(len(packed)):
        with pytest.raises((ValueError, IndexError)):
            decompress(packed[:end], 500)
