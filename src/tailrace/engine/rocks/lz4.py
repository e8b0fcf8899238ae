"""
The LZ4 block format, to read the few blocks of a table that we look into.

A sequence is a token, literal bytes, and a match: how far back to go, and how much to copy from
there. The token has the two lengths, four bits each; 15 goes on in the bytes that follow.
"""

from typing import Final

__all__ = ["decompress"]

_MORE: Final = 15
_MATCH_BYTES_MIN: Final = 4


def decompress(data: bytes, size: int) -> bytes:
    """
    What was compressed, which must have this size.

    Raises:
        ValueError, IndexError: It is not of this form.
    """
    found = bytearray()
    at = 0
    while at < len(data):
        token = data[at]
        count, at = _length(data, at + 1, token >> 4)
        found += data[at : at + count]
        at += count
        if at >= len(data):
            # The last sequence is literals alone.
            break
        back = data[at] | data[at + 1] << 8
        count, at = _length(data, at + 2, token & 15)
        _copy(found, back, count + _MATCH_BYTES_MIN, size)
    if at != len(data) or len(found) != size:
        raise ValueError("it is not what was compressed")
    return bytes(found)


def _length(data: bytes, at: int, length: int) -> tuple[int, int]:
    if length == _MORE:
        while True:
            byte = data[at]
            at += 1
            length += byte
            if byte < 0xFF:
                break
    return length, at


def _copy(found: bytearray, back: int, count: int, size: int) -> None:
    if not 0 < back <= len(found) or len(found) + count > size:
        raise ValueError("it copies what is not there")
    # A match may reach into what it writes itself: it is repeated then.
    piece = bytes(found[-back:][:count])
    found += (piece * (count // len(piece) + 1))[:count]
