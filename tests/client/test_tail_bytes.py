"""A tail gives the bytes that were appended, caught up and live, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest

EURO, EMOJI = "€".encode(), "😀".encode()
PIECES = [b"a", EURO[:1], EURO[1:], b"\xff\x00", EMOJI[:3], EMOJI[3:], b"z", b"end"]


@pytest.mark.parametrize("content_type", ["text/plain", "text/plain; charset=utf-16", "image/png"])
def test_any_bytes(stream: Any, content_type: str) -> None:
    """Characters in several appends, and bytes that are not UTF-8, also in a text stream."""
    stream.create(content_type)
    stream.append(PIECES[0], content_type)
    read, left = b"", PIECES[1:]
    for chunk in stream.tail():
        read += chunk.data
        if chunk.up_to_date:
            for piece in left:
                stream.append(piece, content_type)
            left = []
        if read == b"".join(PIECES) and not chunk.closed:
            stream.close()
    assert read == b"".join(PIECES)
