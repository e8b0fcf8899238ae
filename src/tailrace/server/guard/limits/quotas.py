"""
Quotas of buckets: bytes, streams, messages a second.

The engine asks, see `engine.quota`; here is what the limits file answers.
"""

from collections.abc import Callable

from tailrace.protocol.bucket import BucketState, Growth
from tailrace.server.guard.limits.accounts import Known
from tailrace.server.guard.limits.errors import (
    BucketBytesExceeded,
    BucketRateExceeded,
    BucketStreamsExceeded,
)
from tailrace.server.guard.limits.limits_file import BucketRule, Rules
from tailrace.server.guard.limits.rate import retry_after_s

__all__ = ["Quotas"]


class _Account:
    """What is remembered of a bucket: its rule, and when it may take a burst again."""

    __slots__ = ("full_at", "rule")

    def __init__(self, rule: BucketRule | None) -> None:
        self.rule = rule
        self.full_at = 0

    def is_full(self, now: int) -> bool:
        return self.full_at <= now


class Quotas:
    """What the buckets may still take."""

    def __init__(self, rules: Rules, clock: Callable[[], int]) -> None:
        self._rules = rules
        self._clock = clock
        self._accounts: Known[_Account] = Known()

    def __bool__(self) -> bool:
        """Whether there are any: else the engine need not ask."""
        return bool(self._rules.buckets)

    def use(self, rules: Rules) -> None:
        """Go by other rules from now on."""
        self._rules = rules
        self._accounts.clear()

    def check(self, bucket: bytes, state: BucketState, growth: Growth) -> None:
        """
        Whether a bucket may grow by so much; its rate is counted.

        Raises:
            BucketBytesExceeded, BucketStreamsExceeded, BucketRateExceeded: It may not.
        """
        name = bucket.decode()
        account = self._accounts.get(name)
        if account is None:
            account = _Account(self._rules.of_bucket(name))
            self._accounts.add(name, account, self._clock())
        if (rule := account.rule) is None:
            return
        streams_max, bytes_max = rule.streams_max, rule.bytes_max
        if growth.streams > 0 and streams_max is not None and state.streams >= streams_max:
            raise BucketStreamsExceeded(streams_max)
        if growth.bytes > 0 and bytes_max is not None and state.bytes + growth.bytes > bytes_max:
            raise BucketBytesExceeded(state.bytes, bytes_max)
        if growth.messages and rule.messages is not None:
            account.full_at, wait_ns = rule.messages.take(
                account.full_at, growth.messages, self._clock()
            )
            if wait_ns:
                raise BucketRateExceeded(retry_after_s(wait_ns))
