"""
What is remembered of clients: at most so many of them, whoever comes.

What is forgotten is what was not seen for the longest time; one that is known no more starts with
full buckets. That is safe enough: nearly always the oldest is full again anyway, and those that are
not get a second chance while others near them can go. To be forgotten while in debt, somebody needs
as many other addresses as are kept (an IPv6 /64 is one) to send a request each before that debt is
over; who has those does not gain by it, since each of them has a full bucket to begin with.
"""

from collections import OrderedDict
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["KNOWN_MAX", "Known"]

KNOWN_MAX: Final = 65_536
EVICT_LOOKS_MAX: Final = 8
"""So many of the oldest are looked at for one that loses nothing by being forgotten."""


class Account(Protocol):
    """What is remembered of one."""

    def is_full(self, now: int) -> bool:
        """Whether it is as good as new."""


T = TypeVar("T", bound=Account)


class Known(Generic[T]):
    """An LRU of accounts, which prefers to forget those that are full."""

    def __init__(self, count_max: int = KNOWN_MAX) -> None:
        self._accounts: OrderedDict[str, T] = OrderedDict()
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._accounts)

    def get(self, name: str) -> T | None:
        """The account of somebody who is seen just now."""
        account = self._accounts.get(name)
        if account is not None:
            self._accounts.move_to_end(name)
        return account

    def add(self, name: str, account: T, now: int) -> None:
        """Remember somebody, and forget somebody else if need be."""
        if len(self._accounts) >= self._count_max:
            self._forget(now)
        self._accounts[name] = account

    def clear(self) -> None:
        self._accounts.clear()

    def _forget(self, now: int) -> None:
        accounts = self._accounts
        oldest = next(iter(accounts))
        for _ in range(EVICT_LOOKS_MAX):
            name = next(iter(accounts))
            if accounts[name].is_full(now):
                del accounts[name]
                return
            accounts.move_to_end(name)
        del accounts[oldest]
