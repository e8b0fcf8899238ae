"""
Text in UTF-8, divided into messages at any byte.

An event stream is UTF-8, and each of its events is decoded by itself. So an event must begin and
end between two characters, while an append may end inside one.
"""

import codecs
from collections.abc import Sequence

__all__ = ["NotText", "is_whole", "whole_prefix"]


class NotText(Exception):
    """What follows is not UTF-8: only base64 can represent it."""


def is_whole(parts: Sequence[bytes | memoryview]) -> bool:
    """Whether the parts are UTF-8, and end between two characters."""
    try:
        b"".join(parts).decode()
    except UnicodeDecodeError:
        return False
    return True


def whole_prefix(parts: Sequence[bytes | memoryview]) -> int:
    """
    How many parts can be sent, so that they end between two characters.

    Raises:
        NotText: None, because of a byte that no later part can make valid.
    """
    if is_whole(parts):
        return len(parts)
    decoder = codecs.getincrementaldecoder("utf-8")()
    count = 0
    for at, part in enumerate(parts, 1):
        try:
            decoder.decode(part)
        except UnicodeDecodeError:
            if not count:
                raise NotText from None
            break
        if not decoder.getstate()[0]:
            count = at
    return count
