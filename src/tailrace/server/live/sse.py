"""
The bytes of Server-Sent Events (§5.8).

Each event has the offset after it as its `id`, which a browser sends as `Last-Event-ID` when it
reconnects. The `id` is the last line: some clients expect `data` directly after `event`.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.protocol.json_mode import array_parts
from tailrace.protocol.offset import Offset

__all__ = ["HEARTBEAT", "control_event", "data_event", "deleted_event"]

HEARTBEAT: Final = b": heartbeat\n\n"

_DATA: Final = b"event: data\ndata:%b\nid:%b\n\n"

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def data_event(
    parts: Sequence[bytes | memoryview], end: Offset, *, json: bool, text: bool
) -> bytes:
    """One `data` event with the stored messages before `end`."""
    if not text:
        return _DATA % (b64encode(b"".join(parts)), end.encoded())
    payload = b"".join(array_parts(parts) if json else parts)
    if b"\n" in payload or b"\r" in payload or payload[:1] == b" ":
        # A line end inside the payload would end the field or the event: an injection. A space at
        # the start of a line needs another before it, since readers remove one.
        lines = _LINE_END.split(payload)
        payload = b"\ndata:".join([b" " + line if line[:1] == b" " else line for line in lines])
    return _DATA % (payload, end.encoded())


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
    return b"event: control\ndata:%b\nid:%b\n\n" % (msgspec.json.encode(fields), offset.encoded())


def deleted_event(offset: Offset) -> bytes:
    """The last event of a stream that was deleted while it was read."""
    fields = {"streamNextOffset": offset.token(), "streamDeleted": True}
    return b"event: control\ndata:%b\n\n" % msgspec.json.encode(fields)
