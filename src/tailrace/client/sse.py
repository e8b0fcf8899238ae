"""
Server-Sent Events, parsed as they arrive (the WHATWG's format, and §5.8 on top of it).

Rule 1: input may be split anywhere: inside a line end, a character, or the byte-order mark.

Rule 2: an event is complete when its blank line has arrived. An incomplete one is discarded: a
reader that lost its connection resumes at the control event before it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Event", "EventParser"]

_BOM: Final = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event; `data` is its data lines, joined by line feeds."""

    name: str
    data: bytes


class EventParser:
    """Bytes in, events out."""

    def __init__(self) -> None:
        # The pieces of an incomplete line, which may have many megabytes.
        self._rest: list[bytes] = []
        self._begun = False
        # The last byte was CR: an LF directly after it belongs to the same line end.
        self._after_cr = False
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Add received bytes; the events that they complete."""
        if not self._begun:
            piece = b"".join((*self._rest, piece))
            self._rest.clear()
            if len(piece) < len(_BOM) and _BOM.startswith(piece):
                self._rest.append(piece)
                return
            self._begun = True
            piece = piece.removeprefix(_BOM)
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        if b"\n" not in piece and b"\r" not in piece:
            self._rest.append(piece)
            return
        self._after_cr = piece.endswith(b"\r")
        text = b"".join((*self._rest, piece))
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        # Not `splitlines`, which splits at more characters than this format does.
        *lines, rest = text.split(b"\n")
        self._rest = [rest]
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                yield Event(self._name or "message", b"\n".join(self._data))
                self._name, self._data = "", []
            else:
                self._name = ""

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        # A comment has an empty name; the protocol does not use `id` and `retry`.
