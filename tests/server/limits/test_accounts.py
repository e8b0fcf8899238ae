"""Accounts: bounded, LRU eviction, and accounts in debt are kept if possible."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.server.guard.limits.accounts import EVICTION_CANDIDATES, Accounts


class Account:
    def __init__(self, full_at: int) -> None:
        self.full_at = full_at

    def is_full(self, now: int) -> bool:
        return self.full_at <= now


@given(
    count_max=st.integers(1, 20),
    arrivals=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 100)), max_size=200),
)
def test_the_number_of_accounts_is_bounded(count_max: int, arrivals: list[tuple[int, int]]) -> None:
    accounts: Accounts[Account] = Accounts(count_max)
    for now, (number, full_at) in enumerate(arrivals):
        if accounts.get(str(number)) is None:
            accounts.add(str(number), Account(full_at), now)
        assert len(accounts) <= count_max
        assert accounts.get(str(number)) is not None


def test_the_least_recently_used_is_evicted_first() -> None:
    accounts: Accounts[Account] = Accounts(3)
    for name in "abc":
        accounts.add(name, Account(0), 5)
    accounts.get("a")
    accounts.add("d", Account(0), 5)
    assert [accounts.get(name) is not None for name in "abcd"] == [True, False, True, True]


def test_an_account_in_debt_is_kept_while_a_full_one_can_be_evicted() -> None:
    accounts: Accounts[Account] = Accounts(4)
    for name, full_at in (("a", 99), ("b", 99), ("c", 0), ("d", 99)):
        accounts.add(name, Account(full_at), 5)
    accounts.add("e", Account(99), 5)
    assert [accounts.get(name) is not None for name in "abcde"] == [True, True, False, True, True]


def test_if_all_are_in_debt_the_oldest_is_evicted() -> None:
    count = 3 * EVICTION_CANDIDATES
    accounts: Accounts[Account] = Accounts(count)
    for number in range(count):
        accounts.add(str(number), Account(99), 5)
    accounts.add("new", Account(99), 5)
    assert accounts.get("0") is None
    assert all(accounts.get(str(number)) is not None for number in range(1, count))
    assert len(accounts) == count
