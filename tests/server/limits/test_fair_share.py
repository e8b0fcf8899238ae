"""Places that are shared: one never takes them all, a newcomer finds one, nothing is lost."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.server.guard.limits.fair_share import SHARE_OF_FREE, Denial, FairShare

CLIENTS = st.sampled_from(["a", "b", "c", "d", "e"])
STEPS = st.lists(st.tuples(CLIENTS, st.booleans()), max_size=300)


@given(places=st.integers(1, 60), steps=STEPS)
def test_a_newcomer_finds_a_place_as_long_as_there_is_one(
    places: int, steps: list[tuple[str, bool]]
) -> None:
    """
    The invariant of fairness, whatever came before.

    Method: clients join and leave at random. Whoever holds nothing is refused only when all places
    are taken; whoever joins holds, right before, less than eight times as many as are free.
    """
    share = FairShare(places)
    held = dict.fromkeys("abcde", 0)
    for client, joins in steps:
        free = places - sum(held.values())
        if joins:
            denial = share.join(client)
            assert (denial is None) == (free > 0 and held[client] < SHARE_OF_FREE * free)
            if not held[client]:
                assert (denial is None) == (free > 0)
            held[client] += denial is None
        elif held[client]:
            share.leave(client)
            held[client] -= 1
        assert share.taken == sum(held.values()) <= places
        assert [share.held(name) for name in held] == list(held.values())


@given(places=st.integers(9, 2000), clients=st.integers(1, 12))
def test_greedy_accounts_leave_room_and_get_the_same(places: int, clients: int) -> None:
    """All take what they can get, in turns: equal shares, and a place for one more."""
    share = FairShare(places)
    names = [str(number) for number in range(clients)]
    while None in [share.join(name) for name in names]:
        pass
    got = [share.held(name) for name in names]
    assert max(got) - min(got) <= 1
    if places > clients * SHARE_OF_FREE:
        assert share.taken < places
        assert share.join("newcomer") is None
    if clients == 1:
        assert got[0] == places * SHARE_OF_FREE // (SHARE_OF_FREE + 1) or got[0] == -(
            -places * SHARE_OF_FREE // (SHARE_OF_FREE + 1)
        )


def test_a_maximum_of_its_own_comes_first() -> None:
    share = FairShare(100)
    assert [share.join("a", 2) for _ in range(3)] == [None, None, Denial.OWN]
    assert share.join("b", 0) is Denial.OWN
    share.leave("a")
    assert share.join("a", 2) is None


def test_who_is_exempt_may_take_what_is_free() -> None:
    share = FairShare(20)
    assert [share.join("proxy", exempt=True) for _ in range(21)] == [None] * 20 + [Denial.SHARE]
    assert share.join("a") is Denial.SHARE


def test_nothing_is_remembered_of_who_left() -> None:
    share = FairShare(10_000)
    for number in range(20_000):
        assert share.join(str(number)) is None
        share.leave(str(number))
    assert share.taken == 0
    assert not share._held
