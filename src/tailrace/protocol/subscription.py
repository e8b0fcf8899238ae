"""
Subscriptions (today.md §3): durable cursors over streams that wake workers.

Rule 1: every decision about a wake, a lease or a retry is made in this file. It knows no clock, no
store and no HTTP: time, random numbers and ids are arguments.

Rule 2: a subscription with pending work is never idle. A step that makes work pending, or ends
a wake, issues the next wake too.

Rule 3: a generation is issued once. A wake that ended is fenced from then on.

    idle     nothing is pending
    waking   a wake is issued. Webhook: it is being delivered, or a retry is scheduled.
             Pull-wake: its event is written, and no worker has claimed it.
    leased   a worker has the wake, until its lease expires

A webhook's lease begins with the wake, a pull-wake's with the claim. A failed delivery suspends the
lease: the wake stays valid, for a worker that received it may still call back, and is delivered
again at `retry_at`.
"""

import hashlib
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tailrace.protocol.offset import BEGINNING, START, Offset
from tailrace.protocol.subscription_errors import (
    AlreadyClaimed,
    Fenced,
    InvalidSubscription,
    NoPendingWork,
)

__all__ = [
    "BEFORE_FIRST",
    "LEASE_MS_DEFAULT",
    "LEASE_MS_MAX",
    "LEASE_MS_MIN",
    "RETRY_MS_MAX",
    "Link",
    "LinkedStream",
    "Phase",
    "SubscriptionConfig",
    "SubscriptionState",
    "checked",
    "claim",
    "deliver_again",
    "due_at",
    "end_wake",
    "extend_lease",
    "fail_delivery",
    "fence",
    "issue_wake",
    "offset_text",
]

LEASE_MS_MIN: Final = 1_000
LEASE_MS_MAX: Final = 600_000
LEASE_MS_DEFAULT: Final = 30_000
RETRY_MS_MIN: Final = 1_000
RETRY_MS_MAX: Final = 60_000
RETRY_JITTER: Final = 0.2
ERROR_CHARACTERS_MAX: Final = 500
TEXT_BYTES_MAX: Final = 4096
"""Of each text of a configuration: all are stored again with each wake."""

WEBHOOK: Final = "webhook"
PULL_WAKE: Final = "pull-wake"

BEFORE_FIRST: Final = Offset(-1, -1)
"""The cursor of a stream that began to match later and has not been acknowledged: `-1`."""


def offset_text(offset: Offset) -> str:
    """A cursor as clients see it."""
    return BEGINNING if offset == BEFORE_FIRST else offset.token()


class SubscriptionConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client configures. Paths are relative to the surface of the subscription."""

    type: str
    """`webhook` or `pull-wake`."""
    pattern: str | None = None
    streams: tuple[str, ...] = ()
    webhook_url: str | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int = LEASE_MS_DEFAULT
    description: str | None = None

    def digest(self) -> bytes:
        """Equal for equal configurations."""
        return hashlib.sha256(msgspec.msgpack.encode(msgspec.structs.astuple(self))).digest()


def checked(config: SubscriptionConfig) -> SubscriptionConfig:
    """
    The configuration in its canonical form: paths without surrounding slashes, sorted, each once.

    Raises:
        InvalidSubscription: It is not one that a subscription can have.
    """
    pattern = _stripped(config.pattern)
    streams = tuple(sorted({path.strip("/") for path in config.streams}))
    wake_stream = _stripped(config.wake_stream)
    if config.type not in (WEBHOOK, PULL_WAKE):
        raise InvalidSubscription(f"type must be {WEBHOOK!r} or {PULL_WAKE!r}")
    for text in (pattern, config.webhook_url, wake_stream, config.description):
        if text is not None and len(text.encode()) > TEXT_BYTES_MAX:
            raise InvalidSubscription(f"a text may have {TEXT_BYTES_MAX} bytes at most")
    if pattern == "" or "" in streams:
        raise InvalidSubscription("pattern and streams must not be empty paths")
    if pattern is None and not streams:
        raise InvalidSubscription("a subscription needs a pattern, or streams, or both")
    if config.type == WEBHOOK:
        if not config.webhook_url or wake_stream is not None:
            raise InvalidSubscription("a webhook subscription has webhook.url, and no wake_stream")
    elif not wake_stream or config.webhook_url is not None:
        raise InvalidSubscription("a pull-wake subscription has a wake_stream, and no webhook")
    if not LEASE_MS_MIN <= config.lease_ttl_ms <= LEASE_MS_MAX:
        raise InvalidSubscription(f"lease_ttl_ms must be {LEASE_MS_MIN} to {LEASE_MS_MAX}")
    return replace(config, pattern=pattern, streams=streams, wake_stream=wake_stream)


def _stripped(path: str | None) -> str | None:
    return None if path is None else path.strip("/")


class Phase(IntEnum):
    """Where a subscription is between two wakes; stored by its number."""

    IDLE = 0
    WAKING = 1
    LEASED = 2


class SubscriptionState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subscription after some change. Its cursors are kept beside it."""

    id: int
    """The internal id: a stream with a greater one was created later."""
    config: SubscriptionConfig
    """Without `streams`, which are links."""
    digest: bytes
    """Of the whole configuration."""
    owner: bytes | None
    """Who created it, in the form of the layer above."""
    created_at: int
    generation: int = 0
    wake_id: str = ""
    phase: Phase = Phase.IDLE
    holder: str | None = None
    """The worker that claimed the wake."""
    lease_until: int | None = None
    retry_at: int | None = None
    attempts: int = 0
    """Failed deliveries since the last success."""
    last_error: str | None = None
    """Why the last delivery failed, until one succeeds."""
    pending: int = 0
    """The number of streams with pending work."""

    @property
    def is_webhook(self) -> bool:
        return self.config.type == WEBHOOK

    @property
    def status(self) -> str:
        return "failed" if self.attempts and self.phase is not Phase.IDLE else "active"


class Link(NamedTuple):
    """What is stored of a subscription and a stream; nothing if both are at their default."""

    is_explicit: bool = False
    acked: Offset | None = None
    """The cursor while work is pending; None: it is at the tail."""


class LinkedStream(NamedTuple):
    """A stream of a subscription, and its cursor."""

    path: str
    is_explicit: bool
    acked: Offset
    tail: Offset
    stream_id: int
    """The internal id; 0 if the stream does not exist."""

    @property
    def link_type(self) -> str:
        return "explicit" if self.is_explicit else "glob"

    @property
    def acked_offset(self) -> str:
        return offset_text(self.acked)

    @property
    def tail_offset(self) -> str:
        return self.tail.token()

    @property
    def has_pending(self) -> bool:
        # An empty stream has no work, even if its cursor is before the first append.
        return self.tail > self.acked and self.tail != START


def issue_wake(state: SubscriptionState, wake_id: str, now: int) -> SubscriptionState:
    """A new wake of an idle subscription with pending work."""
    assert state.phase is Phase.IDLE and state.pending
    return replace(
        state,
        generation=state.generation + 1,
        wake_id=wake_id,
        phase=Phase.WAKING,
        lease_until=now + state.config.lease_ttl_ms if state.is_webhook else None,
    )


def claim(state: SubscriptionState, worker: str, now: int) -> SubscriptionState:
    """
    Give the wake to a worker, and start its lease.

    Raises:
        InvalidSubscription: It is a webhook.
        AlreadyClaimed, NoPendingWork: There is nothing to claim.
    """
    if state.is_webhook:
        raise InvalidSubscription("only a pull-wake subscription can be claimed")
    if state.phase is Phase.LEASED:
        raise AlreadyClaimed(state.holder or "", state.generation)
    if not state.pending:
        raise NoPendingWork
    lease_until = now + state.config.lease_ttl_ms
    return replace(state, phase=Phase.LEASED, holder=worker, lease_until=lease_until)


def fence(state: SubscriptionState, wake_id: str, generation: int) -> None:
    """Raises Fenced unless this is the current wake, and a worker can have it."""
    has_worker = state.phase is Phase.LEASED or (state.is_webhook and state.phase is Phase.WAKING)
    if not has_worker or (state.generation, state.wake_id) != (generation, wake_id):
        raise Fenced(generation)


def extend_lease(state: SubscriptionState, now: int) -> SubscriptionState:
    """A worker has the wake, and is alive: it called back, or its webhook answered with 2xx."""
    return replace(
        state,
        phase=Phase.LEASED,
        lease_until=now + state.config.lease_ttl_ms,
        retry_at=None,
        attempts=0,
        last_error=None,
    )


def end_wake(state: SubscriptionState) -> SubscriptionState:
    """The wake is over. Rule 2: the caller issues another one if work is pending."""
    return replace(
        state, phase=Phase.IDLE, wake_id="", holder=None, lease_until=None, retry_at=None
    )


def fail_delivery(
    state: SubscriptionState, error: str, now: int, jitter: float
) -> SubscriptionState:
    """A webhook did not accept the wake: schedule a retry. `jitter` is between -1 and 1."""
    delay = min(RETRY_MS_MIN << min(state.attempts, 16), RETRY_MS_MAX)
    return replace(
        state,
        retry_at=now + round(delay * (1 + RETRY_JITTER * jitter)),
        lease_until=None,
        attempts=state.attempts + 1,
        last_error=error[:ERROR_CHARACTERS_MAX],
    )


def deliver_again(state: SubscriptionState, now: int) -> SubscriptionState:
    """The retry of a wake: the same generation, with a new lease."""
    return replace(state, retry_at=None, lease_until=now + state.config.lease_ttl_ms)


def due_at(state: SubscriptionState, now: int) -> int | None:
    """
    When something must happen without a request: a retry, or the end of a lease.

    Not later than the longest delay from now: a clock that was set back must not stop a wake.
    """
    if state.retry_at is not None:
        return min(state.retry_at, now + round(RETRY_MS_MAX * (1 + RETRY_JITTER)))
    if state.lease_until is not None:
        return min(state.lease_until, now + state.config.lease_ttl_ms)
    return None
