"""The body of a request, as an ASGI server passes it on."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tailrace.server.errors import BodyIncomplete, BodyTooLarge
from tailrace.server.message import BodySink, Request

__all__ = ["Receive", "collect_body", "stream_body"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def stream_body(request: Request, sink: BodySink, receive: Receive) -> bool:
    """Write the body to a sink; false if the peer went away before it was complete."""
    room = asyncio.Event()
    sink.drained = room.set
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                sink.cancel()
                return False
            if piece := message.get("body", b""):
                sink.write(piece)
            if not message.get("more_body", False):
                _check_length(request, sink.size)
                return True
            while sink.blocked:
                room.clear()
                await room.wait()
    except BaseException:
        sink.cancel()
        raise


async def collect_body(request: Request, receive: Receive, bytes_max: int) -> bool:
    """Collect the whole body; false if the peer went away before it was complete."""
    if int(request.headers.get(b"content-length", b"0")) > bytes_max:
        raise BodyTooLarge(bytes_max)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return False
        piece = message.get("body", b"")
        size += len(piece)
        if size > bytes_max:
            raise BodyTooLarge(bytes_max)
        pieces.append(piece)
        if not message.get("more_body", False):
            request.body = b"".join(pieces)
            _check_length(request, size)
            return True


def _check_length(request: Request, size: int) -> None:
    """
    Refuse a body of another length than announced.

    Some servers drop the body of a request with an Upgrade header, such as the one for HTTP/2 that
    curl and Java send, and pass on an empty one.
    """
    headers = request.headers
    upgrades = b"upgrade" in headers
    advice = " without its Upgrade header" if upgrades else ""
    length = headers.get(b"content-length")
    if length is not None:
        if size != int(length):
            raise BodyIncomplete(f"has {size} bytes instead of {int(length)}", advice)
    elif upgrades and not size and b"transfer-encoding" in headers:
        raise BodyIncomplete("did not arrive", advice)
