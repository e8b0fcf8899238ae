"""
Accounts of clients or buckets: a bounded number of them, with LRU eviction.

The least recently used account is evicted. A client whose account was evicted starts again with
full token buckets. That is acceptable: the oldest account is nearly always full anyway, and an
account in debt is skipped while a full one is among the oldest few. To have an account evicted
while it is in debt, a client needs as many other addresses as there are accounts (an IPv6 /64 is
one address), each with a request within the time of that debt. It gains nothing by that, since
each of those addresses has a full token bucket of its own.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["ACCOUNTS_MAX", "Accounts"]

ACCOUNTS_MAX: Final = 65_536
EVICTION_CANDIDATES: Final = 8
"""How many of the oldest accounts are searched for one that is full."""


class Account(Protocol):
    """An entry of `Accounts`."""

    def is_full(self, now: int) -> bool:
        """Whether its token buckets are full, so that eviction loses nothing."""


T = TypeVar("T", bound=Account)


class Accounts(Generic[T]):
    """An LRU cache of accounts that prefers to evict full ones."""

    def __init__(
        self, new: Callable[[str], T], clock: Callable[[], int], count_max: int = ACCOUNTS_MAX
    ) -> None:
        self._accounts: OrderedDict[str, T] = OrderedDict()
        self._new = new
        self._clock = clock
        self._count_max = count_max

    def get(self, name: str) -> T | None:
        """The account of this name, which becomes the most recently used one."""
        account = self._accounts.get(name)
        if account is not None:
            self._accounts.move_to_end(name)
        return account

    def get_or_add(self, name: str) -> T:
        """As `get`; a missing account is added, and evicts another one if there are too many."""
        account = self.get(name)
        if account is None:
            account = self._new(name)
            if len(self._accounts) >= self._count_max:
                self._evict(self._clock())
            self._accounts[name] = account
        return account

    def clear(self) -> None:
        self._accounts.clear()

    def _evict(self, now: int) -> None:
        accounts = self._accounts
        oldest = next(iter(accounts))
        for _ in range(EVICTION_CANDIDATES):
            name = next(iter(accounts))
            if accounts[name].is_full(now):
                del accounts[name]
                return
            accounts.move_to_end(name)
        del accounts[oldest]
