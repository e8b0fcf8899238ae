"""What concerns many streams of a server at once, as flows: places, and rows. Tailrace only."""

import json
from collections.abc import Sequence
from typing import Any, Final

from tailrace.client.errors import AnswerInvalid, Refused, refusal
from tailrace.client.flow import Flow, Give, Piece, expect, fetch
from tailrace.client.items import Items
from tailrace.client.requests import Options, make_call
from tailrace.client.values import Found, Place

__all__ = ["BulkFlows"]

PLACES_MAX: Final = 10_000
"""So many a request."""
ROWS_PIECE_BYTES: Final = 256 << 10
_JSON: Final = {"content-type": "application/json"}
_PROBLEM: Final = {"content-type": "application/problem+json"}


class BulkFlows:
    """A server at its URL."""

    def __init__(self, url: str, options: Options) -> None:
        self.url = url
        self._options = options

    def offsets(self, places: Sequence[Place]) -> Flow[list[str | Refused]]:
        """
        The offset of each place, or the error that reading there would have.

        Raises:
            NotFound: This server cannot tell.
        """
        found = yield from self.find(places)
        return [item.offset if isinstance(item, Found) else item for item in found]

    def find(self, places: Sequence[Place]) -> Flow[list[Found | Refused]]:
        """
        Each place, and the stream that it is in; or the error that reading there would have.

        Raises:
            NotFound: This server cannot tell.
        """
        url = f"{self.url}/-/offsets"
        found: list[Found | Refused] = []
        for at in range(0, len(places), PLACES_MAX):
            some = places[at : at + PLACES_MAX]
            body = json.dumps({"places": [place.fields() for place in some]}).encode()
            call = yield from make_call(self._options, "POST", url, headers=_JSON, body=body)
            _, answer = yield from fetch(call, self._options.retry, 200)
            try:
                found += [_found(url, item) for item in json.loads(answer)["places"]]
            except (ValueError, KeyError, TypeError):
                raise AnswerInvalid(url, "the answer has no offsets; is it ours?") from None
            if len(found) != at + len(some):
                raise AnswerInvalid(url, "the answer has not an offset for each place")
        return found

    def rows(self, body: bytes) -> Items[bytes]:
        """
        The messages of many ranges, as an Arrow stream, piece by piece as it arrives.

        `body` is the request as `docs/http.md` has it; `tailrace.spark.rows.read_rows` makes it,
        takes the answer apart and goes on where it breaks off.

        Raises:
            Refused: The request is not of its form, or this server has no rows.
            Unreachable: It broke off.
        """
        return Items(self._rows(body))

    def _rows(self, body: bytes) -> Flow[None]:
        url = f"{self.url}/-/rows"
        call = yield from make_call(self._options, "POST", url, headers=_JSON, body=body)
        yield from expect(call, self._options.retry, 200)
        while piece := (yield Piece(ROWS_PIECE_BYTES)):
            yield Give((piece,))


def _found(url: str, item: dict[str, Any]) -> Found | Refused:
    if "error" not in item:
        offset = item["offset"]
        if not isinstance(offset, str):
            raise TypeError
        return Found(offset, item["created_at_ms"], item["closed"])
    error = item["error"]
    return refusal(error["status"], url, _PROBLEM, json.dumps(error).encode())
