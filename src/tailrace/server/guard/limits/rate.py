"""
Token buckets, one number each.

A rate lets `per_s` units a second through, and `burst` at once. A full bucket and how it drains and
fills can be said by one moment: when it will be full again. What is taken moves that moment on by
as long as its refill takes, and nothing has to be done while nobody asks.

Rule 1: over any time t no more than per_s * t + burst passes, all in whole nanoseconds, rounded
against the client.

Rule 2: nobody is locked out. What is larger than the burst passes when the bucket is full, and
leaves a debt that is waited for afterwards. So one such take may exceed rule 1, by itself alone.

Rule 3: whoever waits as long as it is told passes, unless another request of the same client was
faster.
"""

from typing import Final, NamedTuple

__all__ = ["Rate", "retry_after_s"]

_S: Final = 1_000_000_000
_MILLI: Final = 1000
_UNIT: Final = _S * _MILLI
"""What a unit costs at a rate of a thousandth a second, in nanoseconds."""


class Rate(NamedTuple):
    """So many units a second, and so many at once. Times are nanoseconds of a monotonic clock."""

    milli_per_s: int
    burst_ns: int
    """How long an empty bucket takes to be full."""

    @classmethod
    def of(cls, per_s: float, burst: int) -> "Rate":
        """From what the limits file says; at least a thousandth a second, and a burst of one."""
        milli_per_s = max(1, round(per_s * _MILLI))
        return cls(milli_per_s, burst * _UNIT // milli_per_s)

    def take(self, full_at: int, count: int, now: int) -> tuple[int, int]:
        """
        Take so many units of a bucket that will be full at some moment.

        Returns when it will be full afterwards, and 0; or, if it has too little, when it will be
        full and for how long to wait.
        """
        milli_per_s, burst_ns = self
        refill_ns = -(-count * _UNIT // milli_per_s)
        start = full_at if full_at > now else now
        # What is larger than the burst needs a full bucket, and no more.
        wait_ns = start - now - (burst_ns - refill_ns if refill_ns < burst_ns else 0)
        if wait_ns > 0:
            return full_at, wait_ns
        return start + refill_ns, 0


def retry_after_s(wait_ns: int) -> int:
    """What Retry-After says: whole seconds, at least one."""
    return max(1, -(-wait_ns // _S))
