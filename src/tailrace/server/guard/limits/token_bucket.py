"""
Token buckets, with one number of state each.

A rate allows `per_s` units per second, and `burst` units at once. The state of a bucket is the time
when it will be full again. Taking units moves that time by the duration of their refill. Nothing
has to run between requests.

Rule 1: in any interval t, at most per_s * t + burst units pass. All times are whole nanoseconds,
rounded against the client.

Rule 2: no request is locked out. One that is larger than the burst passes when the bucket is full
and leaves a debt, so that later requests wait for its refill. Such a request alone may exceed
rule 1.

Rule 3: a client that waits for the time of `Retry-After` passes, unless another request of the same
client came first.
"""

from typing import Final

__all__ = ["TokenBucket", "retry_after_s"]

_S: Final = 1_000_000_000
_MILLI: Final = 1000
_UNIT: Final = _S * _MILLI
"""The refill time of one unit at a rate of 0.001 per second, in nanoseconds."""


class TokenBucket:
    """Units per second, and a burst. Times are nanoseconds of a monotonic clock."""

    __slots__ = ("burst_ns", "full_at", "milli_per_s")

    def __init__(self, per_s: float, burst: int | None = None) -> None:
        """At least 0.001 units per second. The default burst is one second of units, at least 1."""
        self.milli_per_s = max(1, round(per_s * _MILLI))
        burst = max(1, int(per_s)) if burst is None else burst
        # The time in which an empty bucket becomes full.
        self.burst_ns = burst * _UNIT // self.milli_per_s
        self.full_at = 0

    def take(self, count: int, now: int, *, check_only: bool = False) -> int:
        """
        Take `count` units and return 0, or return the time to wait until they can be taken.

        `check_only`: take nothing.
        """
        burst_ns, full_at = self.burst_ns, self.full_at
        refill_ns = -(-count * _UNIT // self.milli_per_s)
        start = full_at if full_at > now else now
        # A request larger than the burst needs a full bucket, and no more.
        wait_ns = start - now - (burst_ns - refill_ns if refill_ns < burst_ns else 0)
        if wait_ns > 0:
            return wait_ns
        if not check_only:
            self.full_at = start + refill_ns
        return 0


def retry_after_s(wait_ns: int) -> int:
    """The value of Retry-After: whole seconds, at least 1."""
    return max(1, -(-wait_ns // _S))
