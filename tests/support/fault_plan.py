"""
The plan that assigns faults to requests, shuffled by a seed.

Each kind of request has its own queue. It holds every fault that this kind can have, and as many
entries without a fault, in random order; an empty queue is filled again. So every fault happens
within one length of the queue, whatever the seed, and never so often in a row that a client's
retries run out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random

from tests.support.chance import derive

__all__ = ["POST_FAULTS", "READ_FAULTS", "SSE_FAULTS", "Fault", "Plan", "PlannedFault", "Request"]


class Fault(Enum):
    """What can happen to a request and its response."""

    CUT_REQUEST = "the connection ends before the server has the whole request"
    CUT_HEAD = "executed; the connection ends within the head of the response"
    CUT_BODY = "the connection ends within the body, or within an event"
    HANG_UP = "the connection ends after a whole response, or between two events"
    FAIL_BEFORE = "the proxy responds; the server does not receive the request"
    FAIL_AFTER = "executed; the proxy responds instead of the server"
    SLOW = "the response arrives with pauses between its pieces"
    CRUMBS = "the response arrives byte by byte"
    TWICE_FIRST = "delivered on two connections at once; the first response is passed on"
    TWICE_SECOND = "delivered on two connections at once; the second response is passed on"
    TWICE_LATE = "delivered again, after requests that were sent later"
    HELD = "delivered after requests that were sent later"


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
# Event streams end often without a fault; most of their faults should be inside events.
SSE_FAULTS = (
    *(fault for fault in READ_FAULTS if fault is not Fault.HANG_UP),
    *[Fault.CUT_BODY] * 4,
)
# The response to an append has no body.
POST_FAULTS = tuple(fault for fault in Fault if fault is not Fault.CUT_BODY)

FAILURES = (500, 502, 503, 429)


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request's head that the proxy needs."""

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
class PlannedFault:
    """A fault, and the random generator for its details, such as the byte of a cut."""

    fault: Fault
    rng: Random
    is_sse: bool = False
    status: int | None = None
    retry_after_s: int | None = None


class Plan:
    """
    Assigns a fault or none to each request, as the seed determines.

    Half of all requests have no fault (except for event streams), and no request has one after
    `faults_max` faults. A `Retry-After` of a second or more is sent once for each status, because
    the client waits that long.
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
        self.faults_planned = 0
        self._requests = 0
        self._queues: dict[tuple[Fault, ...], list[Fault | None]] = {}
        self._failures = self._responses(tuple(retry_after_s))
        self._lock = threading.Lock()

    def draw(self, request: Request) -> PlannedFault | None:
        """The fault of this request, or None."""
        with self._lock:
            queue = self._queues.setdefault(request.faults, [])
            self._requests += 1
            rng = derive(*self._seed, self._requests)
            if not queue:
                possible = [fault for fault in request.faults if fault in self._faults]
                without = 0 if request.is_sse and possible else max(1, len(possible))
                queue += [*possible, *[None] * without]
                rng.shuffle(queue)
            fault = queue.pop()
            if fault is None or self.faults_planned == self.faults_max:
                return None
            self.faults_planned += 1
            failing = fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER)
            response = next(self._failures) if failing else ()
            return PlannedFault(fault, rng, request.is_sse, *response)

    def _responses(self, retry_after_s: tuple[int | None, ...]) -> Iterator[tuple[int, int | None]]:
        """Each status with each `Retry-After`, repeatedly."""
        combinations = [(status, after) for after in retry_after_s for status in FAILURES]
        derive(*self._seed, "responses").shuffle(combinations)
        while True:
            yield from combinations
            combinations = [(status, after) for status, after in combinations if not after]
