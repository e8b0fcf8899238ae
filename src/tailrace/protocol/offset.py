"""
Offsets: positions in a stream (§6).

A token is `{message}_{byte}`, each 16 decimal digits: the number of messages and of stored bytes
before the position. Both grow together, so tokens sort as text and never equal `-1` or `now`.
"""

import re
from typing import Final, NamedTuple

from tailrace.protocol.errors import OffsetInvalid

__all__ = ["BEGINNING", "START", "TAIL", "Offset", "parse_offset"]

BEGINNING: Final = "-1"
TAIL: Final = "now"

_TOKEN: Final = re.compile(r"[0-9]{16}_[0-9]{16}", re.ASCII)
# No stream has more messages or bytes.
_LENIENT_TOKEN: Final = re.compile(r"[0-9]{1,32}_[0-9]{1,32}", re.ASCII)


class Offset(NamedTuple):
    """A position between two messages."""

    message: int
    byte: int

    def token(self) -> str:
        return f"{self.message:016d}_{self.byte:016d}"

    def encoded(self) -> bytes:
        """The token as the value of a header."""
        return b"%016d_%016d" % self


START: Final = Offset(0, 0)


def parse_offset(token: str, *, lenient: bool = False) -> Offset:
    """
    Parse a token, but not `-1` or `now`; `lenient`: numbers of any width.

    Raises OffsetInvalid if the text is not a token.
    """
    if _TOKEN.fullmatch(token):
        return Offset(int(token[:16]), int(token[17:]))
    if lenient and _LENIENT_TOKEN.fullmatch(token):
        message, _, byte = token.partition("_")
        return Offset(int(message), int(byte))
    raise OffsetInvalid(token[:64])
