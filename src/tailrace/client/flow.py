"""
Flows: the operations of the client as generators, which leave all input and output to a driver.

A flow yields an effect and receives its result:

    Send(request)        send a request                       an `HttpResponse`
    Prefetch(request)    start a request that is sent next    nothing; its `Send` raises the error
    Body()               read the rest of the response body   bytes
    Piece(size)          read the next piece of it            bytes, empty at the end
    Wait(seconds)        sleep                                nothing
    Evaluate(function)   call a function of the user          its value, awaited if awaitable
    Give(items)          pass items to the iterating caller   nothing
    Reached(offset, …)   everything up to here was passed on  nothing
    Deadline(seconds)    end the whole flow by then           nothing; later ones raise `TimedOut`

and returns the result of the operation. The driver throws `Unreachable` into it if a request, or
reading its response, failed, and any error that a function of the user raised.

Rule 1: flows make every decision: what to send, whether to retry, where to resume, what is an
error. A driver only performs effects, so the blocking and the asynchronous client behave the same.

Rule 2: nothing is retried that might be stored twice. A request is `safe` if sending it a second
time changes nothing more; any other is repeated only if it cannot have been carried out.
"""

import random
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, Final, Generic, TypeAlias, TypeVar

from tailrace.client.errors import Refused, Unreachable, refusal

__all__ = [
    "TRANSIENT_STATUSES",
    "Body",
    "Deadline",
    "Evaluate",
    "Flow",
    "FlowEffect",
    "Give",
    "HttpRequest",
    "HttpResponse",
    "Items",
    "MakeRequest",
    "Piece",
    "Prefetch",
    "Reached",
    "Retry",
    "Send",
    "Wait",
    "delete",
    "each",
    "expect",
    "fetch",
    "perform",
    "reason_of",
    "refused",
    "send",
    "whole",
]

A = TypeVar("A")
T = TypeVar("T")

TRANSIENT_STATUSES: Final = frozenset((429, 500, 502, 503, 504))
"""Statuses of transient failures: a safe request is retried."""
_NOT_CARRIED_OUT: Final = frozenset((429,))
"""Statuses of requests that were not processed: any request may be repeated."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed request is retried, and after which pauses."""

    attempts_max: int = 8
    """Attempts in total, the first one included, until one succeeds."""
    first_s: float = 0.1
    longest_s: float = 10.0
    jitter: Callable[[], float] = random.random
    retry_after_s_max: float = 300.0
    """The longest pause that a server can ask for by `Retry-After`."""

    def pause_s(self, attempt: int, headers: Mapping[str, str] | None = None) -> float:
        """The back-off after a number of failures: exponential, or what the server asks for."""
        requested = _retry_after_s(headers or {})
        longest = min(self.longest_s, self.first_s * 2.0 ** min(attempt - 1, 62))
        if requested is not None:
            requested = min(requested, self.retry_after_s_max)
            longest = min(longest, self.first_s)
        # Never at once, and never all clients at the same time.
        return max(requested or 0.0, longest * (0.5 + 0.5 * self.jitter()))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """RFC 9110, 10.2.3: seconds, or a date."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        return float(value)
    if not value:
        return None
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time())


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    safe: bool = True
    """Whether it may be sent again, whatever happened to it."""
    retry: Retry = field(default_factory=Retry)
    idle_s: float | None = None
    """The timeout between two pieces of the response, if not that of the client."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The status and the headers of a response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    url: str
    repeated: bool = False
    """An earlier attempt may have been carried out, and its response was lost."""


@dataclass(frozen=True, slots=True)
class Send:
    request: HttpRequest


@dataclass(frozen=True, slots=True)
class Prefetch:
    """The server works on this request while the user handles the items before it."""

    request: HttpRequest


@dataclass(frozen=True, slots=True)
class Body:
    pass


@dataclass(frozen=True, slots=True)
class Piece:
    size: int = 64 << 10
    """At most this many bytes, if the driver can choose."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Evaluate:
    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Give(Generic[T]):
    items: Iterable[T]


@dataclass(frozen=True, slots=True)
class Reached:
    """A reader was given all items before an offset."""

    next_offset: str
    up_to_date: bool
    closed: bool


@dataclass(frozen=True, slots=True)
class Deadline:
    seconds: float


_Awaited: TypeAlias = Send | Prefetch | Body | Piece | Wait | Evaluate | Reached | Deadline
FlowEffect: TypeAlias = _Awaited | Give[Any]
Flow: TypeAlias = Generator[FlowEffect, Any, T]
Items: TypeAlias = Generator[_Awaited | Give[T], Any, None]
"""A flow that gives items of one type; a driver makes an iterator of it."""
MakeRequest: TypeAlias = Callable[[], Flow[HttpRequest]]
"""Makes a request for each attempt, with fresh values of headers and parameters."""


def perform(effect: FlowEffect, exchange: Any) -> Any:
    """The result of an effect by the exchange of a driver; of an asynchronous one, a coroutine."""
    match effect:
        case Send(request):
            return exchange.send(request)
        case Piece(size):
            return exchange.read(size)
        case Body():
            return exchange.read(None)
        case Prefetch(request):
            return exchange.prefetch(request)
        case Wait(seconds):
            return exchange.wait(seconds)
        case Evaluate(function):
            return exchange.evaluate(function)
        case Deadline(seconds):
            return exchange.end_after(seconds)
    raise AssertionError(f"unknown effect {effect!r}")


def reason_of(error: BaseException) -> str:
    """The reason of an `Unreachable`."""
    return str(error) or type(error).__name__


def each(flow: Items[A], convert: Callable[[A], Iterable[T]]) -> Items[T]:
    """The same flow with each of its items converted to others."""
    outcome: Any = None
    error: Exception | None = None
    while True:
        try:
            effect = flow.send(outcome) if error is None else flow.throw(error)
        except StopIteration:
            return
        outcome, error = None, None
        if isinstance(effect, Give):
            for item in effect.items:
                yield Give(convert(item))
        else:
            try:
                outcome = yield effect
            except Exception as failed:
                error = failed


def send(make: MakeRequest) -> Flow[HttpResponse]:
    """Send a request until there is a response that is no transient failure, or raise."""
    attempt = 1
    repeated = False
    while True:
        request = yield from make()
        retry = request.retry
        headers: Mapping[str, str] = {}
        try:
            response: HttpResponse = yield Send(request)
        except Unreachable as error:
            if attempt >= retry.attempts_max or (error.sent and not request.safe):
                raise
            repeated = repeated or error.sent
        else:
            status = response.status
            repeatable = request.safe or status in _NOT_CARRIED_OUT
            if status not in TRANSIENT_STATUSES or not repeatable or attempt >= retry.attempts_max:
                return replace(response, repeated=repeated)
            repeated = repeated or status not in _NOT_CARRIED_OUT
            headers = response.headers
        yield Wait(retry.pause_s(attempt, headers))
        attempt += 1


def expect(make: MakeRequest, *statuses: int) -> Flow[HttpResponse]:
    """Send a request and require one of some statuses; raise `Refused` for others."""
    response = yield from send(make)
    if response.status not in statuses:
        raise (yield from refused(response))
    return response


def fetch(
    make: MakeRequest, retry: Retry, read: Callable[[HttpResponse], Flow[T]], *statuses: int
) -> Flow[T]:
    """Send a safe request and read its response, again if that breaks off."""
    attempt = 1
    while True:
        response = yield from expect(make, *statuses)
        try:
            return (yield from read(response))
        except Unreachable:
            if attempt >= retry.attempts_max:
                raise
        yield Wait(retry.pause_s(attempt))
        attempt += 1


def whole(response: HttpResponse) -> Flow[tuple[HttpResponse, bytes]]:
    """A response with its body."""
    body: bytes = yield Body()
    return response, body


def delete(make: MakeRequest) -> Flow[None]:
    """Delete something. A 404 to a second attempt is a success: the first one was carried out."""
    response = yield from send(make)
    was_deleted = response.status == 404 and response.repeated
    if response.status not in (200, 202, 204) and not was_deleted:
        raise (yield from refused(response))
    yield Body()


def refused(response: HttpResponse) -> Flow[Refused]:
    """The error that a response stands for, with the code and detail of its body."""
    try:
        body = yield Body()
    except Unreachable:
        body = b""
    return refusal(response.status, response.url, response.headers, body)
