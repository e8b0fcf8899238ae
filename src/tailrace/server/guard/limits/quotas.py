"""Quotas of buckets: bytes, streams, messages per second. The engine calls `Quotas.check`."""

from collections.abc import Callable

from tailrace.protocol.bucket import BucketState, Growth
from tailrace.server.guard.limits.accounts import Accounts
from tailrace.server.guard.limits.errors import (
    BucketBytesExceeded,
    BucketRateExceeded,
    BucketStreamsExceeded,
)
from tailrace.server.guard.limits.limits_file import BucketRule, LimitRules
from tailrace.server.guard.limits.token_bucket import retry_after_s

__all__ = ["Quotas"]


class _Account:
    """A bucket's rule, and the token bucket of its messages."""

    __slots__ = ("messages", "rule")

    def __init__(self, rule: BucketRule | None) -> None:
        self.rule = rule
        self.messages = None if rule is None else rule.token_bucket("messages")

    def is_full(self, now: int) -> bool:
        return self.messages is None or self.messages.full_at <= now


class Quotas:
    """The quotas of all buckets."""

    def __init__(self, rules: LimitRules, clock: Callable[[], int]) -> None:
        self._rules = rules
        self._clock = clock
        self._accounts = Accounts(lambda name: _Account(self._rules.for_bucket(name)), clock)

    def __bool__(self) -> bool:
        """Whether there are any; if not, the engine skips the check."""
        return bool(self._rules.bucket)

    def use(self, rules: LimitRules) -> None:
        """Replace the rules. Resets all counters."""
        self._rules = rules
        self._accounts.clear()

    def check(self, bucket: bytes, state: BucketState, growth: Growth) -> None:
        """
        Check that a bucket may grow by `growth`, and count its messages.

        Raises:
            BucketBytesExceeded, BucketStreamsExceeded, BucketRateExceeded: It may not.
        """
        name = bucket.decode()
        account = self._accounts.get(name) or self._accounts.get_or_add(name)
        if (rule := account.rule) is None:
            return
        streams_max, bytes_max = rule.streams_max, rule.bytes_max
        if growth.streams > 0 and streams_max is not None and state.streams >= streams_max:
            raise BucketStreamsExceeded(streams_max)
        if growth.bytes > 0 and bytes_max is not None and state.bytes + growth.bytes > bytes_max:
            raise BucketBytesExceeded(state.bytes, bytes_max)
        if growth.messages and account.messages is not None:
            wait_ns = account.messages.take(growth.messages, self._clock())
            if wait_ns:
                raise BucketRateExceeded(retry_after_s(wait_ns))
