"""
Which exchange meets which fault: decks of cards, shuffled by a seed.

Each kind of request has a deck of its own. A deck holds every fault that this kind can meet, and
calm cards between them; an empty one is dealt anew. So every fault happens for sure after as many
requests as a deck has cards, whatever the seed, and never in runs that outlast a client's retries.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random

from tests.support.chance import derive

__all__ = ["POST_FAULTS", "READ_FAULTS", "SSE_FAULTS", "Card", "Fault", "Plan", "Request"]


class Fault(Enum):
    """What can become of an exchange."""

    CUT_REQUEST = "the connection is lost before the server has all of the request"
    CUT_HEAD = "carried out, and then lost at some byte of the answer's head"
    CUT_BODY = "lost at some byte of the answer's body: in the middle of an event, if it has events"
    HANG_UP = "lost right after a whole answer, or between two events, without a word"
    FAIL_BEFORE = "answered by the proxy; the server never sees it"
    FAIL_AFTER = "carried out, and answered by the proxy instead"
    SLOW = "the answer comes with pauses between its pieces"
    CRUMBS = "the answer comes byte by byte"
    TWICE_FIRST = "delivered on two connections at once; the answer of the first one counts"
    TWICE_SECOND = "the same, and the answer of the second one counts"
    TWICE_LATE = "delivered again, after others that were sent later"
    HELD = "delivered after others that were sent later"


READ_FAULTS = (
    Fault.CUT_REQUEST,
    Fault.CUT_HEAD,
    Fault.CUT_BODY,
    Fault.HANG_UP,
    Fault.FAIL_BEFORE,
    Fault.FAIL_AFTER,
    Fault.SLOW,
    Fault.CRUMBS,
)
# An event stream ends by itself, often; and most of what happens to it shall happen inside events.
SSE_FAULTS = (
    *(fault for fault in READ_FAULTS if fault is not Fault.HANG_UP),
    *[Fault.CUT_BODY] * 4,
)
# The answer to an append has no body.
POST_FAULTS = tuple(fault for fault in Fault if fault is not Fault.CUT_BODY)

FAILURES = (500, 502, 503, 429)


@dataclass(frozen=True, slots=True)
class Request:
    """As much of a request's head as the proxy has to know."""

    method: str
    target: str
    headers: dict[str, str]

    @classmethod
    def parse(cls, head: bytes) -> Request:
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        return cls(method, target, parse_headers(lines))

    @property
    def is_sse(self) -> bool:
        return "live=sse" in self.target

    @property
    def faults(self) -> tuple[Fault, ...]:
        if self.is_sse:
            return SSE_FAULTS
        return POST_FAULTS if self.method == "POST" else READ_FAULTS


def parse_headers(lines: Iterable[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.lower(): value.strip() for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Card:
    """A fault, and the chance that decides its details: which byte, which status, how long."""

    fault: Fault
    chance: Random
    is_sse: bool = False
    status: int | None = None
    retry_after_s: int | None = None


class Plan:
    """
    Deals a card to each request, as the seed says.

    Half of all requests stay calm (none of those for event streams, which last), and all of them do
    after `faults_max` faults. A `Retry-After` of a second or more is given once for each status,
    since it takes just as long.
    """

    def __init__(
        self,
        *seed: object,
        faults: Iterable[Fault] = Fault,
        faults_max: int = 500,
        retry_after_s: Iterable[int | None] = (None, 0),
    ) -> None:
        self._seed = seed
        self._faults = frozenset(faults)
        self.faults_max = faults_max
        self.faults_dealt = 0
        self._requests = 0
        self._decks: dict[tuple[Fault, ...], list[Fault | None]] = {}
        self._failures = self._answers(tuple(retry_after_s))
        self._lock = threading.Lock()

    def draw(self, request: Request) -> Card | None:
        """What happens to this request; None if nothing does."""
        with self._lock:
            deck = self._decks.setdefault(request.faults, [])
            self._requests += 1
            chance = derive(*self._seed, self._requests)
            if not deck:
                possible = [fault for fault in request.faults if fault in self._faults]
                calm = 0 if request.is_sse and possible else max(1, len(possible))
                deck += [*possible, *[None] * calm]
                chance.shuffle(deck)
            fault = deck.pop()
            if fault is None or self.faults_dealt == self.faults_max:
                return None
            self.faults_dealt += 1
            failing = fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER)
            answer = next(self._failures) if failing else ()
            return Card(fault, chance, request.is_sse, *answer)

    def _answers(self, retry_after_s: tuple[int | None, ...]) -> Iterator[tuple[int, int | None]]:
        """Each status with each `Retry-After`, again and again."""
        combinations = [(status, after) for after in retry_after_s for status in FAILURES]
        derive(*self._seed, "answers").shuffle(combinations)
        while True:
            yield from combinations
            combinations = [(status, after) for status, after in combinations if not after]
