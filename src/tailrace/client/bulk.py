"""Operations on many streams of a server at once, as flows: offsets, and rows. Tailrace only."""

import json
from collections.abc import Sequence
from typing import Any, Final

from tailrace.client.encoding import JSON
from tailrace.client.errors import AnswerInvalid, Refused, refusal
from tailrace.client.flow import Flow, Give, Items, Piece, expect
from tailrace.client.requests import Resource
from tailrace.client.values import Found, Place

__all__ = ["BulkFlows"]

PLACES_MAX: Final = 10_000
"""At most this many places per request."""
ROWS_PIECE_BYTES: Final = 256 << 10
_IS_JSON: Final = {"content-type": JSON}


class BulkFlows(Resource):
    """A server at its URL."""

    def offsets(self, places: Sequence[Place]) -> Flow[list[str | Refused]]:
        """
        The offset of each place, or the error that a read would raise.

        Raises:
            NotFound: The server does not offer this.
        """
        found = yield from self.find(places)
        return [item.offset if isinstance(item, Found) else item for item in found]

    def find(self, places: Sequence[Place]) -> Flow[list[Found | Refused]]:
        """
        The offset of each place and its stream's state, or the error that a read would raise.

        Raises:
            NotFound: The server does not offer this.
        """
        path = "/-/offsets"
        found: list[Found | Refused] = []
        for at in range(0, len(places), PLACES_MAX):
            some = places[at : at + PLACES_MAX]
            body = json.dumps({"places": [place.fields() for place in some]}).encode()
            request = self._request("POST", path, headers=_IS_JSON, body=body)
            _, content = yield from self._fetch(request, 200)
            try:
                found += [_found(self.url + path, item) for item in json.loads(content)["places"]]
            except (ValueError, KeyError, TypeError):
                reason = "the response has no offsets; is it a Tailrace server?"
                raise AnswerInvalid(self.url + path, reason) from None
            if len(found) != at + len(some):
                raise AnswerInvalid(self.url + path, "the response lacks the offset of a place")
        return found

    def rows(self, body: bytes) -> Items[bytes]:
        """
        The messages of many ranges, as an Arrow stream, in pieces as they arrive.

        `body` is the request as `docs/http.md` describes it. `tailrace.spark.rows.read_rows` makes
        it, parses the response, and resumes where it breaks off.

        Raises:
            Refused: The request is invalid, or the server has no rows.
            Unreachable: The response broke off.
        """
        yield from expect(self._request("POST", "/-/rows", headers=_IS_JSON, body=body), 200)
        while piece := (yield Piece(ROWS_PIECE_BYTES)):
            yield Give((piece,))


def _found(url: str, item: dict[str, Any]) -> Found | Refused:
    if "error" not in item:
        offset = item["offset"]
        if not isinstance(offset, str):
            raise TypeError
        return Found(offset, item["created_at_ms"], item["closed"])
    error = item["error"]
    return refusal(error["status"], url, _IS_JSON, json.dumps(error).encode())
