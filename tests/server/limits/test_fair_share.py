"""Fair shares: no client takes all slots, a new client gets one, and no slot is lost."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.server.guard.limits.fair_share import SHARE_OF_FREE, FairShare

CLIENTS = st.sampled_from(["a", "b", "c", "d", "e"])
STEPS = st.lists(st.tuples(CLIENTS, st.booleans()), max_size=300)


@given(slots=st.integers(1, 60), steps=STEPS)
def test_a_new_client_gets_a_slot_while_one_is_free(
    slots: int, steps: list[tuple[str, bool]]
) -> None:
    """
    The invariant of fairness, whatever came before.

    Method: clients join and leave at random. A client without slots is rejected only when all are
    taken; a client that joins held less than eight times as many as were free.
    """
    share = FairShare(slots)
    held = dict.fromkeys("abcde", 0)
    for client, joins in steps:
        free = slots - sum(held.values())
        if joins:
            joined = share.join(client)
            assert joined == (free > 0 and held[client] < SHARE_OF_FREE * free)
            if not held[client]:
                assert joined == (free > 0)
            held[client] += joined
        elif held[client]:
            share.leave(client)
            held[client] -= 1
        assert share.taken == sum(held.values()) <= slots
        assert [share.held(name) for name in held] == list(held.values())


@given(slots=st.integers(9, 2000), clients=st.integers(1, 12))
def test_greedy_clients_get_equal_shares_and_leave_a_slot(slots: int, clients: int) -> None:
    """All take what they can get, in turns."""
    share = FairShare(slots)
    names = [str(number) for number in range(clients)]
    while True in [share.join(name) for name in names]:
        pass
    got = [share.held(name) for name in names]
    assert max(got) - min(got) <= 1
    if slots > clients * SHARE_OF_FREE:
        assert share.taken < slots
        assert share.join("new")
    if clients == 1:
        assert got[0] == slots * SHARE_OF_FREE // (SHARE_OF_FREE + 1) or got[0] == -(
            -slots * SHARE_OF_FREE // (SHARE_OF_FREE + 1)
        )


def test_a_client_never_exceeds_its_own_maximum() -> None:
    share = FairShare(100)
    assert [share.join("a", 2) for _ in range(3)] == [True, True, False]
    assert not share.join("b", 0)
    share.leave("a")
    assert share.join("a", 2)


def test_an_exempt_client_may_take_every_free_slot() -> None:
    share = FairShare(20)
    assert [share.join("proxy", exempt=True) for _ in range(21)] == [True] * 20 + [False]
    assert not share.join("a")


def test_clients_that_left_use_no_memory() -> None:
    share = FairShare(10_000)
    for number in range(20_000):
        assert share.join(str(number))
        share.leave(str(number))
    assert share.taken == 0
    assert not share._held
