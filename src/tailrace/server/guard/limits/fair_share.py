"""
A fixed number of slots that clients share fairly, without knowing how many clients there are.

Rule 1: a client may hold at most eight times as many slots as are free. A single client gets eight
ninths of all slots, two clients get eight seventeenths each, and so on. As more clients come, the
share of each shrinks; no client loses a slot that it holds.

Rule 2: it follows that no client takes all slots. A new client gets a slot while any is free, and
to exhaust them takes more clients than an eighth of the slots, each with its full share.

This is the dynamic threshold by which network switches share their buffers. A decision compares two
numbers. Only clients that hold a slot are in memory, never more than there are slots.
"""

from typing import Final

__all__ = ["FairShare"]

SHARE_OF_FREE: Final = 8


class FairShare:
    """Slots, and how many of them each client holds."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.taken = 0
        self._held: dict[str, int] = {}

    def held(self, client: str) -> int:
        """How many slots a client holds."""
        return self._held.get(client, 0)

    def join(self, client: str, own_max: int | None = None, *, exempt: bool = False) -> bool:
        """
        Take a slot; false if the client has its share or its own maximum, or no slot is free.

        An `exempt` client may take any free slot.
        """
        free = self.slots - self.taken
        held = self._held.get(client, 0)
        if (
            free <= 0
            or (own_max is not None and held >= own_max)
            or (held >= SHARE_OF_FREE * free and not exempt)
        ):
            return False
        self.taken += 1
        self._held[client] = held + 1
        return True

    def leave(self, client: str) -> None:
        """Return a slot."""
        held = self._held.pop(client) - 1
        self.taken -= 1
        if held:
            self._held[client] = held
