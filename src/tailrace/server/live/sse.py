"""The bytes of Server-Sent Events (§5.8)."""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.protocol.json_mode import array_parts
from tailrace.protocol.offset import Offset

__all__ = ["HEARTBEAT", "control_event", "data_event", "deleted_event"]

HEARTBEAT: Final = b": heartbeat\n\n"

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def data_event(parts: Sequence[bytes | memoryview], *, json: bool, text: bool) -> bytes:
    """One `data` event with stored messages."""
    if not text:
        return b"event: data\ndata:%b\n\n" % b64encode(b"".join(parts))
    payload = b"".join(array_parts(parts) if json else parts)
    if b"\n" in payload or b"\r" in payload or payload[:1] == b" ":
        # A line end inside the payload would end the field or the event: an injection. A space at
        # the start of a line needs another before it, since readers remove one.
        lines = _LINE_END.split(payload)
        payload = b"\ndata:".join([b" " + line if line[:1] == b" " else line for line in lines])
    return b"event: data\ndata:%b\n\n" % payload


def control_event(
    offset: Offset, *, cursor: int | None, up_to_date: bool, closed: bool = False
) -> bytes:
    """The `control` event after every `data` event; a closed stream has no cursor."""
    fields: dict[str, str | bool] = {"streamNextOffset": offset.token()}
    if cursor is not None and not closed:
        fields["streamCursor"] = str(cursor)
    if up_to_date:
        fields["upToDate"] = True
    if closed:
        fields["streamClosed"] = True
    return b"event: control\ndata:%b\n\n" % msgspec.json.encode(fields)


def deleted_event(offset: Offset) -> bytes:
    """The last event of a stream that was deleted while it was read."""
    fields = {"streamNextOffset": offset.token(), "streamDeleted": True}
    return b"event: control\ndata:%b\n\n" % msgspec.json.encode(fields)
