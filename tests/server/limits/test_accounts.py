"""Accounts: bounded, LRU eviction, and accounts in debt are kept if possible."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.server.guard.limits.accounts import EVICTION_CANDIDATES, Accounts

NOW = 5


class Account:
    def __init__(self, full_at: int) -> None:
        self.full_at = full_at

    def is_full(self, now: int) -> bool:
        return self.full_at <= now


def accounts_of(full_at: dict[str, int], count_max: int) -> Accounts[Account]:
    """Accounts by name, each full at the given time, else at once."""
    return Accounts(lambda name: Account(full_at.get(name, 0)), lambda: NOW, count_max)


@given(
    count_max=st.integers(1, 20),
    arrivals=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 100)), max_size=200),
)
def test_the_number_of_accounts_is_bounded(count_max: int, arrivals: list[tuple[int, int]]) -> None:
    full_at = {str(number): at for number, at in arrivals}
    times = iter(range(len(arrivals)))
    accounts = Accounts(lambda name: Account(full_at[name]), lambda: next(times), count_max)
    for number, _ in arrivals:
        added = accounts.get_or_add(str(number))
        assert len(accounts._accounts) <= count_max
        assert accounts.get(str(number)) is added


def test_the_least_recently_used_is_evicted_first() -> None:
    accounts = accounts_of({}, 3)
    for name in "abc":
        accounts.get_or_add(name)
    accounts.get("a")
    accounts.get_or_add("d")
    assert [accounts.get(name) is not None for name in "abcd"] == [True, False, True, True]


def test_an_account_in_debt_is_kept_while_a_full_one_can_be_evicted() -> None:
    accounts = accounts_of({"a": 99, "b": 99, "d": 99, "e": 99}, 4)
    for name in "abcde":
        accounts.get_or_add(name)
    assert [accounts.get(name) is not None for name in "abcde"] == [True, True, False, True, True]


def test_if_all_are_in_debt_the_oldest_is_evicted() -> None:
    count = 3 * EVICTION_CANDIDATES
    names = [*map(str, range(count)), "new"]
    accounts = accounts_of(dict.fromkeys(names, 99), count)
    for name in names:
        accounts.get_or_add(name)
    assert accounts.get("0") is None
    assert all(accounts.get(name) is not None for name in names[1:])
    assert len(accounts._accounts) == count
