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

from typing import Final, NamedTuple

__all__ = ["Rate", "retry_after_s"]

_S: Final = 1_000_000_000
_MILLI: Final = 1000
_UNIT: Final = _S * _MILLI
"""The refill time of one unit at a rate of 0.001 per second, in nanoseconds."""


class Rate(NamedTuple):
    """Units per second, and a burst. Times are nanoseconds of a monotonic clock."""

    milli_per_s: int
    burst_ns: int
    """The time in which an empty bucket becomes full."""

    @classmethod
    def of(cls, per_s: float, burst: int | None = None) -> "Rate":
        """At least 0.001 units per second. The default burst is one second of units, at least 1."""
        milli_per_s = max(1, round(per_s * _MILLI))
        burst = max(1, int(per_s)) if burst is None else burst
        return cls(milli_per_s, burst * _UNIT // milli_per_s)

    def take(self, full_at: int, count: int, now: int) -> tuple[int, int]:
        """
        Take `count` units from a bucket that will be full at `full_at`.

        Returns the new `full_at` and 0. If the bucket holds too few, returns the old `full_at` and
        the time to wait.
        """
        milli_per_s, burst_ns = self
        refill_ns = -(-count * _UNIT // milli_per_s)
        start = full_at if full_at > now else now
        # A request larger than the burst needs a full bucket, and no more.
        wait_ns = start - now - (burst_ns - refill_ns if refill_ns < burst_ns else 0)
        if wait_ns > 0:
            return full_at, wait_ns
        return start + refill_ns, 0


def retry_after_s(wait_ns: int) -> int:
    """The value of Retry-After: whole seconds, at least 1."""
    return max(1, -(-wait_ns // _S))
