"""
Places that clients share fairly, without anybody saying how many there are of them.

Rule 1: a client may hold at most eight times as many places as are still free. One alone gets
eight ninths of all, two get eight seventeenths each, and so on: as more come, each may have less,
and nobody is thrown out for that.

Rule 2: so one client never takes them all, and a newcomer finds a place until the last one is
gone; that takes more clients than an eighth of the places, each with its share.

It is the dynamic threshold that switches share their buffers by. A decision looks at two numbers,
and what is remembered are the clients that hold something, never more than there are places.
"""

from enum import Enum
from typing import Final

__all__ = ["Denial", "Share"]

SHARE_OF_FREE: Final = 8


class Denial(Enum):
    """Why there is no place."""

    SHARE = "the client has its share, or there is none left"
    OWN = "the client has as many as it may have"


class Share:
    """Places, and who holds how many of them."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.taken = 0
        self._held: dict[str, int] = {}

    def held(self, client: str) -> int:
        """How many places a client holds."""
        return self._held.get(client, 0)

    def join(
        self, client: str, own_max: int | None = None, *, exempt: bool = False
    ) -> Denial | None:
        """Take a place, if there is one for this client; any free one, if it is `exempt`."""
        free = self.places - self.taken
        held = self._held.get(client, 0)
        if own_max is not None and held >= own_max:
            return Denial.OWN
        if free <= 0 or (held >= SHARE_OF_FREE * free and not exempt):
            return Denial.SHARE
        self.taken += 1
        self._held[client] = held + 1
        return None

    def leave(self, client: str) -> None:
        """Give a place back."""
        held = self._held.pop(client) - 1
        self.taken -= 1
        if held:
            self._held[client] = held
