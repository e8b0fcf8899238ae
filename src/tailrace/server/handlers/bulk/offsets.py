"""`POST /-/offsets`: the offsets of messages, bytes or times in many streams."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tailrace.engine.base import Store
from tailrace.engine.engine import Engine
from tailrace.engine.search import find_byte, find_message, find_time
from tailrace.protocol.errors import Refusal
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState
from tailrace.server import headers as h
from tailrace.server.errors import RequestInvalid
from tailrace.server.guard.access import Principal
from tailrace.server.handlers.bulk.stream_reference import StreamReference, decode_body
from tailrace.server.message import Request, Response

__all__ = ["OffsetsHandler"]

PLACES_MAX: Final = 10_000
TURN_S: Final = 0.002
"""At most this long, one request occupies a turn of the loop."""


class _Place(StreamReference, kw_only=True):
    """A position in a stream, by message number, byte number or time."""

    message: int | None = None
    byte: int | None = None
    time: int | None = None

    def search(self) -> tuple[Callable[[Store, StreamState, int], Offset], int]:
        """Return the search function and its argument."""
        given = [
            (find, value)
            for find, value in (
                (find_message, self.message),
                (find_byte, self.byte),
                (find_time, self.time),
            )
            if value is not None
        ]
        if len(given) != 1:
            raise RequestInvalid("a place has one of message, byte and time")
        return given[0]


class _Request(msgspec.Struct):
    places: list[_Place]


_decode: Final = msgspec.json.Decoder(_Request).decode


class OffsetsHandler:
    """POST of `/-/offsets`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find(self, request: Request) -> Response:
        """Return an offset, or an error, for each place."""
        places = decode_body(request, _decode).places
        if len(places) > PLACES_MAX:
            raise RequestInvalid(f"a request may have {PLACES_MAX} places at most")
        found = []
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_S
        for place in places:
            found.append(self._find(place, request.principal))
            if loop.time() > until:
                await asyncio.sleep(0)
                until = loop.time() + TURN_S
        headers = [(h.CONTENT_TYPE, b"application/json"), h.NO_STORE]
        return Response(200, headers, msgspec.json.encode({"places": found}))

    def _find(self, place: _Place, principal: Principal | None) -> dict[str, Any]:
        try:
            find, value = place.search()
            state = self._engine.find(place.readable_key(principal)).durable
            assert state is not None
            return {
                "offset": find(self._engine.store, state, value).token(),
                "created_at_ms": state.created_at,
                "closed": state.closed,
            }
        except Refusal as refusal:
            detail = refusal.detail.encode("utf-8", "replace").decode()
            return {"error": {"status": refusal.status, "code": refusal.code, "detail": detail}}
