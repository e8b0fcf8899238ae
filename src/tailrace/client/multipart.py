"""
The parts of a `multipart/mixed` response as they arrive (RFC 2046, in a bootstrap: X§3.2).

The standard library's `email` needs the whole response at once.
"""

from collections.abc import Iterator
from email.message import Message
from typing import NamedTuple

__all__ = ["PartParser", "RawPart", "boundary_of"]


class RawPart(NamedTuple):
    """One part: its content type, if given, and its bytes."""

    content_type: str | None
    data: bytes


def boundary_of(content_type: str) -> bytes | None:
    """The boundary of a multipart content type; None for other types."""
    header = Message()
    header["content-type"] = content_type
    if header.get_content_maintype() != "multipart":
        return None
    boundary = header.get_boundary()
    return None if boundary is None else boundary.encode("latin-1")


class PartParser:
    """Bytes in, whole parts out."""

    def __init__(self, boundary: bytes) -> None:
        self.ended = False
        """The closing delimiter has arrived: there are no more parts."""
        self._mark = b"\r\n--" + boundary
        # The first delimiter needs no line end before it.
        self._buffer = bytearray(b"\r\n")
        # There is no delimiter before this index.
        self._searched = 0
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[RawPart]:
        """Add received bytes; the parts that they complete."""
        buffer, mark = self._buffer, self._mark
        buffer += piece
        while not self.ended:
            at = buffer.find(mark, self._searched)
            if at < 0:
                self._searched = max(0, len(buffer) - len(mark))
                return
            after = at + len(mark)
            following = bytes(buffer[after : after + 2])
            if len(following) < 2:
                self._searched = at
                return
            if following not in (b"\r\n", b"--"):
                # A longer line that begins like a delimiter.
                self._searched = at + 1
                continue
            if self._begun:
                yield _part(bytes(buffer[:at]))
            self._begun = True
            self.ended = following == b"--"
            del buffer[:after]
            self._searched = 0


def _part(raw: bytes) -> RawPart:
    """A part from its headers, a blank line, and its bytes."""
    head, _, data = raw.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-type":
            return RawPart(value.strip().decode("latin-1"), data)
    return RawPart(None, data)
