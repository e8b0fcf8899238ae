"""
What a client does, without doing it: one flow for every operation, and two shells that drive it.

A flow is a generator. It yields an effect and is sent what came of it:

    Send(call)      send a request                       an `Answer`, its head
    Ahead(call)     begin with what is sent next         nothing, and no error
    Body()          read the rest of the answer          bytes
    Piece()         read what comes next of it           bytes, empty at the end
    Wait(seconds)   let time pass                        nothing
    Value(source)   call something of the user's         its value, awaited if need be
    Give(items)     hand items to who iterates           nothing

and returns its result. `Unreachable` is thrown into it where a request, or reading its answer,
failed, and whatever something of the user's raises.

Rule 1: every decision is made here: what to send, whether to try again, where to resume, what is an
error. A shell only performs effects, so that both behave the same.

Rule 2: nothing is tried again that might be stored twice. A request is `safe` if sending it a
second time changes nothing more; any other is repeated only where it cannot have been carried out.
"""

import random
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, Final, TypeAlias, TypeVar

from tailrace.client.errors import Refused, Unreachable, refusal

__all__ = [
    "PASSING",
    "Ahead",
    "Answer",
    "Body",
    "Call",
    "Effect",
    "Flow",
    "Give",
    "Piece",
    "Retry",
    "Send",
    "Value",
    "Wait",
    "expect",
    "expect_gone",
    "fetch",
    "refused",
    "send",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A request."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    safe: bool = True
    """Whether it may be sent again, whatever became of it."""
    idle_s: float | None = None
    """How long nothing may come, if not as long as for others."""
    remake: "Callable[[], Flow[Call]] | None" = field(default=None, repr=False, compare=False)
    """How to make it anew, with what is fresh each time, before it is sent again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    url: str
    repeated: bool = False
    """An earlier attempt may have been carried out, and its answer got lost."""


@dataclass(frozen=True, slots=True)
class Send:
    call: Call


@dataclass(frozen=True, slots=True)
class Ahead:
    """So that the server is at work on it while the user is with what came before."""

    call: Call


@dataclass(frozen=True, slots=True)
class Body:
    pass


@dataclass(frozen=True, slots=True)
class Piece:
    size: int = 64 << 10
    """No more than this, where a shell can choose."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Value:
    source: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Give:
    items: Iterable[Any]


Effect: TypeAlias = Send | Ahead | Body | Piece | Wait | Value | Give
Flow: TypeAlias = Generator[Effect, Any, T]

PASSING: Final = frozenset((429, 500, 502, 503, 504))
"""Statuses of failures that pass: what is safe is tried again."""
_NOT_CARRIED_OUT: Final = frozenset((429,))
"""Statuses that say that a request was not looked at: it may be repeated, whatever it was."""
_RETRY_AFTER_S_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and how patiently, what failed is tried again."""

    attempts_max: int = 8
    """In all, the first one included, until something succeeds again."""
    first_s: float = 0.1
    longest_s: float = 10.0
    jitter: Callable[[], float] = random.random

    def pause_s(self, attempt: int, headers: Mapping[str, str] | None = None) -> float:
        """How long to wait after a number of failures: what the server says, or ever longer."""
        asked = _retry_after_s(headers or {})
        longest = min(self.longest_s, self.first_s * 2.0 ** min(attempt - 1, 62))
        if asked is not None:
            longest = min(longest, self.first_s)
        # Never at once, and never all clients together.
        return max(asked or 0.0, longest * (0.5 + 0.5 * self.jitter()))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """RFC 9110, 10.2.3: seconds, or a date."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        return min(float(value), _RETRY_AFTER_S_MAX)
    if not value:
        return None
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return min(max(0.0, moment.timestamp() - time()), _RETRY_AFTER_S_MAX)


def send(call: Call, retry: Retry) -> Flow[Answer]:
    """
    Send a request until it is answered, and not by a failure that passes.

    Raises:
        Unreachable: It is not, or cannot be sent again.
    """
    attempt = 1
    repeated = False
    while True:
        headers: Mapping[str, str] = {}
        try:
            answer: Answer = yield Send(call)
        except Unreachable as error:
            if attempt >= retry.attempts_max or (error.sent and not call.safe):
                raise
            repeated = repeated or error.sent
        else:
            repeatable = call.safe or answer.status in _NOT_CARRIED_OUT
            if answer.status not in PASSING or not repeatable or attempt >= retry.attempts_max:
                return replace(answer, repeated=repeated)
            repeated = repeated or answer.status not in _NOT_CARRIED_OUT
            headers = answer.headers
        yield Wait(retry.pause_s(attempt, headers))
        attempt += 1
        if call.remake is not None:
            call = yield from call.remake()


def expect(call: Call, retry: Retry, *statuses: int) -> Flow[Answer]:
    """
    Send a request and insist on one of some statuses.

    Raises:
        Refused: It was answered otherwise.
        Unreachable: It was not answered.
    """
    answer = yield from send(call, retry)
    if answer.status not in statuses:
        raise (yield from refused(answer))
    return answer


def fetch(call: Call, retry: Retry, *statuses: int) -> Flow[tuple[Answer, bytes]]:
    """
    Send a request that is safe and read all of its answer, again if that breaks off.

    Raises:
        As `expect` does.
    """
    attempt = 1
    while True:
        answer = yield from expect(call, retry, *statuses)
        try:
            body: bytes = yield Body()
        except Unreachable:
            if attempt >= retry.attempts_max:
                raise
        else:
            return answer, body
        yield Wait(retry.pause_s(attempt))
        attempt += 1
        if call.remake is not None:
            call = yield from call.remake()


def expect_gone(call: Call, retry: Retry) -> Flow[None]:
    """
    Delete something. A 404 to a second attempt is a success: the first one was carried out.

    Raises:
        Refused, Unreachable: It could not be deleted.
    """
    answer = yield from send(call, retry)
    if answer.status not in (200, 202, 204) and not (answer.status == 404 and answer.repeated):
        raise (yield from refused(answer))
    yield Body()


def refused(answer: Answer) -> Flow[Refused]:
    """The error that an answer stands for, with what its body says."""
    try:
        body = yield Body()
    except Unreachable:
        body = b""
    return refusal(answer.status, answer.url, answer.headers, body)
