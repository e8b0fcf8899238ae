"""`POST /-/offsets`: where in many streams a message, a byte or a moment is."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tailrace.engine.base import Store
from tailrace.engine.core import Engine
from tailrace.engine.search import find_byte, find_message, find_time
from tailrace.protocol.errors import Refusal
from tailrace.protocol.offset import Offset
from tailrace.protocol.state import StreamState
from tailrace.server import headers as h
from tailrace.server.errors import RequestInvalid
from tailrace.server.guard.access import Principal
from tailrace.server.message import Request, Response
from tailrace.server.named import Named, decode_body

__all__ = ["Offsets"]

PLACES_MAX: Final = 10_000
TURN_S: Final = 0.002
"""So long a turn of the loop may take for one request."""


class _Place(Named, kw_only=True):
    """A place in a stream, by one of three things that can be said of it."""

    message: int | None = None
    byte: int | None = None
    time: int | None = None

    def search(self) -> tuple[Callable[[Store, StreamState, int], Offset], int]:
        """
        How to find it.

        Raises:
            RequestInvalid: None of the three is said, or more than one.
        """
        asked = [
            (find, value)
            for find, value in (
                (find_message, self.message),
                (find_byte, self.byte),
                (find_time, self.time),
            )
            if value is not None
        ]
        if len(asked) != 1:
            raise RequestInvalid("a place has one of message, byte and time")
        return asked[0]


class _Request(msgspec.Struct):
    places: list[_Place]


_decode: Final = msgspec.json.Decoder(_Request).decode


class Offsets:
    """Answers to requests for offsets."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def answer(self, request: Request) -> Response:
        """
        An offset for each place, or why there is none.

        Raises:
            RequestInvalid: The body is not a request for offsets.
        """
        asked = decode_body(request, _decode)
        if len(asked.places) > PLACES_MAX:
            raise RequestInvalid(f"a request may have {PLACES_MAX} places at most")
        found = []
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_S
        for place in asked.places:
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
            error = {"status": refusal.status, "code": refusal.code, "detail": detail}
            return {"error": error}
